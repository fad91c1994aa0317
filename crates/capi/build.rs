//! The shared library's name for the loader: programs that were linked with one release run with every later one of the
//! same number.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtrapeze.so.0");
}
