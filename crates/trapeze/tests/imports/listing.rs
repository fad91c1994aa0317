//! Listings with attributes: what they cost the origin.

use super::*;
use wire::Attr;

const FILES: usize = 400;
const DIRECTORIES: usize = 20;

/// Long enough for a test not to doubt what it has just learned.
fn believing(origin: &Origin) -> Plan {
    Plan { attributes: Duration::from_secs(8), ..origin.plan() }
}

fn filled() -> Origin {
    let origin = Origin::start();
    let mut theirs = origin.cluster.volume().unwrap();
    theirs.make_directory(Path::new("/d"), 0o755).unwrap();
    for file in 0..FILES {
        let path = format!("/d/{file:04}");
        theirs.write_file(Path::new(&path), 0o644, &mut &b"some"[..], &mut |_| ()).unwrap();
    }
    for directory in 0..DIRECTORIES {
        theirs.make_directory(Path::new(&format!("/d/sub{directory}")), 0o750).unwrap();
    }
    origin
}

fn attributes(ours: &mut Volume) -> Vec<(String, Attr)> {
    let listed = ours.list_attributes(Path::new(&at("d"))).unwrap();
    let named =
        listed.into_iter().map(|(name, attr)| (String::from_utf8(name.to_vec()).unwrap(), attr));
    named.collect()
}

#[test]
fn a_listing_with_attributes_costs_the_origin_a_call_for_a_page_of_names() {
    let origin = filled();
    let cache = Cache::start(believing(&origin));
    let mut ours = cache.volume();
    assert_eq!(attributes(&mut ours).len(), FILES + DIRECTORIES);
    let pages = origin.calls("READDIRPLUS");
    let mut all = Vec::new();
    until("the files are doubted", || {
        let (before, listed) = (origin.all_calls(), origin.calls("READDIRPLUS"));
        all = attributes(&mut ours);
        let (calls, listed) = (origin.all_calls() - before, origin.calls("READDIRPLUS") - listed);
        assert!(calls * 20 < FILES as u64, "{calls} calls, {listed} of them READDIRPLUS");
        assert!(listed <= pages, "{listed} READDIRPLUS, where all names are {pages}");
        listed > 0
    });
    assert_eq!(all.len(), FILES + DIRECTORIES);
    assert!(all.iter().all(|(name, attr)| match name.starts_with("sub") {
        true => attr.mode & 0o777 == 0o750,
        false => (attr.mode & 0o777, attr.size) == (0o644, 4),
    }));
    // what was told is believed as long as other attributes
    let before = origin.calls("GETATTR");
    for (name, _) in all.iter().filter(|(name, _)| !name.starts_with("sub")).take(30) {
        ours.stat(Path::new(&at(&format!("d/{name}")))).unwrap();
    }
    assert!(origin.calls("GETATTR") - before <= 2, "of directories at most");
}

#[test]
fn a_listing_shows_changes_of_files_and_directories_at_the_origin() {
    let origin = filled();
    let cache = Cache::start(Plan { attributes: Duration::from_secs(3), ..origin.plan() });
    let mut ours = cache.volume();
    assert_eq!(attributes(&mut ours).len(), FILES + DIRECTORIES);
    origin.write("/d/0007", b"longer than before");
    let mut theirs = origin.cluster.volume().unwrap();
    theirs.make_directory(Path::new("/d/sub3/deep"), 0o755).unwrap();
    let mtime = theirs.stat(Path::new("/d/sub3")).unwrap().mtime;
    until("both are shown", || {
        let all = attributes(&mut ours);
        let of = |name: &str| all.iter().find(|(it, _)| it == name).unwrap().1;
        of("0007").size == 18 && of("sub3").mtime == mtime
    });
    assert_eq!(names(&mut ours, "d/sub3"), ["deep"]);
    let deep = ours.stat(Path::new(&at("d/sub3/deep"))).unwrap();
    assert_eq!(deep.mode & 0o777, 0o755);
}

/// An importer that was started anew knows no cookies.
#[test]
fn a_listing_after_a_restart_of_the_importer_costs_no_more() {
    let origin = filled();
    let mut cache = Cache::start(believing(&origin));
    let mut ours = cache.volume();
    assert_eq!(attributes(&mut ours).len(), FILES + DIRECTORIES);
    cache.restart(believing(&origin));
    let (before, mut ours) = (origin.all_calls(), cache.volume());
    assert_eq!(attributes(&mut ours).len(), FILES + DIRECTORIES);
    let calls = origin.all_calls() - before;
    assert!(calls * 20 < FILES as u64, "{calls} calls");
}

/// A listing shows times of directories, of which the names of before would be believed by who caches them.
#[test]
fn names_are_as_new_as_the_times_of_their_directory() {
    let origin = Origin::start();
    let mut theirs = origin.cluster.volume().unwrap();
    theirs.make_directory(Path::new("/d"), 0o755).unwrap();
    theirs.make_directory(Path::new("/d/sub"), 0o755).unwrap();
    origin.write("/d/sub/one", b"1");
    let cache = Cache::start(Plan { attributes: Duration::from_secs(4), ..origin.plan() });
    let mut ours = cache.volume();
    assert_eq!(names(&mut ours, "d"), ["sub"]);
    // so that its names are believed for longer than those of the one above
    thread::sleep(Duration::from_secs(2));
    assert_eq!(names(&mut ours, "d/sub"), ["one"]);
    origin.write("/d/sub/two", b"2");
    origin.write("/d/late", b"3");
    until("the directory above is listed again", || names(&mut ours, "d") == ["late", "sub"]);
    let shown = ours.stat(Path::new(&at("d/sub"))).unwrap().mtime;
    assert_eq!(shown, theirs.stat(Path::new("/d/sub")).unwrap().mtime);
    assert_eq!(names(&mut ours, "d/sub"), ["one", "two"]);
}
