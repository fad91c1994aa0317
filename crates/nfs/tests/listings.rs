//! Cookies, and how much of a listing fits.

use nfs::cookies::{Listing, VERIFIER, check, of_client, to_client};
use nfs::v3::*;
use nfs::xdr::{Xdr, decoded, encoded};
use proptest::prelude::*;
use wire::FileId;

const DIRECTORY: FileId = FileId::new(3, 9);

fn fattr() -> Fattr {
    nfs::convert::fattr(&wire::Attr::default(), 1)
}

fn plus(name: &[u8], cookie: u64, full: bool) -> EntryPlus<'_> {
    let attributes = full.then(fattr);
    let handle = full.then_some(Handle(&[7; 32]));
    EntryPlus { fileid: 5, name: Path(name), cookie, attributes, handle }
}

/// bcachefs-tools#652, fuse-backend-rs#228, chimera#294.
#[test]
fn cookies_stay_small_and_leave_others_numbers_alone() {
    let first = 3u64 << 48 | 1;
    assert_eq!(to_client(DIRECTORY, 0), 0);
    assert_eq!(to_client(DIRECTORY, first), 3);
    assert_eq!(to_client(DIRECTORY, first + (1 << 30)), (1 << 30) + 3);
    assert_eq!([1, 2, 1 << 63, u64::MAX].map(|cookie| of_client(DIRECTORY, cookie)), [None; 4]);
}

/// dittofs#253: a cookie is good whatever happened to the directory; nfsserve#50: and it is looked at.
#[test]
fn a_verifier_is_of_the_encoding_only() {
    assert_eq!(check(DIRECTORY, 0, [9; 8]), Ok(0));
    assert_eq!(check(DIRECTORY, 3, VERIFIER), Ok(3 << 48 | 1));
    assert_eq!(check(DIRECTORY, 3, [0; 8]), Ok(3 << 48 | 1));
    assert_eq!(check(DIRECTORY, 3, [9; 8]), Err(Status::BadCookie));
    assert_eq!(check(DIRECTORY, 2, VERIFIER), Err(Status::BadCookie));
}

#[test]
fn room_for_no_entry_is_too_small_but_an_empty_end_is_not() {
    let begin = |count| Listing::readdir(Vec::new(), None, count);
    assert_eq!(begin(19).unwrap_err(), Status::TooSmall);
    assert!(begin(20).unwrap().finish(true).is_ok());
    let mut listing = begin(40).unwrap();
    assert!(!listing.push(&plus(b"a", 1, false)));
    assert_eq!(listing.finish(false), Err(Status::TooSmall));
}

/// Some clients say less than one name takes.
#[test]
fn the_first_entry_comes_whatever_dircount_says() {
    let mut listing = Listing::readdirplus(Vec::new(), None, 1, 8192).unwrap();
    assert!(listing.push(&plus(b"name", 1, true)));
    assert!(!listing.push(&plus(b"name", 2, true)));
}

proptest! {
    #[test]
    fn cookies_come_back(site: u8, own: u8, position in 1u64..1 << 48) {
        let directory = FileId::new(own, 1);
        let cookie = u64::from(site) << 48 | position;
        let seen = to_client(directory, cookie);
        prop_assert!(seen > 2);
        prop_assert!(seen < 1 << 63);
        prop_assert_eq!(of_client(directory, seen), Some(cookie));
    }

    #[test]
    fn a_client_s_cookie_is_one_of_ours_or_none(own: u8, cookie: u64) {
        let directory = FileId::new(own, 1);
        if let Some(ours) = of_client(directory, cookie) {
            prop_assert!(ours < 1 << 56);
        }
    }

    /// dittofs#1002: bytes are counted as they are sent; as many entries as fit, and no more.
    #[test]
    fn listings_fill_what_they_may(
        names in prop::collection::vec(prop::collection::vec(1u8..255, 1..40), 1..40),
        counts in (150u32..3000, 150u32..6000),
        with in (any::<bool>(), any::<bool>(), any::<bool>()),
    ) {
        let ((dircount, maxcount), (is_plus, own, full)) = (counts, with);
        let attributes = own.then(fattr);
        let begin = match is_plus {
            true => Listing::readdirplus(Vec::new(), attributes, dircount, maxcount),
            false => Listing::readdir(Vec::new(), attributes, maxcount),
        };
        let mut listing = begin.unwrap();
        let entries: Vec<_> = names.iter().zip(1..).map(|(name, cookie)| plus(name, cookie, full)).collect();
        let pushed = entries.iter().take_while(|entry| listing.push(entry)).count();
        let Ok(bytes) = listing.finish(pushed == entries.len()) else {
            prop_assert_eq!(pushed, 0);
            return Ok(());
        };
        // the status stands before the structure that counts
        prop_assert!(bytes.len() - 4 <= maxcount as usize);
        let next = entries.get(pushed).map(|entry| match is_plus {
            true => 4 + encoded(entry).len(),
            false => 4 + encoded(&Entry { fileid: 5, name: entry.name, cookie: 1 }).len(),
        });
        let names_bytes: usize = entries.iter().take(pushed + 1)
            .map(|entry| encoded(&Entry { fileid: 5, name: entry.name, cookie: 1 }).len()).sum();
        let is_full = next.is_none_or(|next| bytes.len() - 4 + next > maxcount as usize);
        prop_assert!(is_full || is_plus && names_bytes > dircount as usize);
        let found: Vec<u64> = match is_plus {
            true => {
                let found: Outcome<ReaddirplusOk<'_>, AttrFailure> = decoded(&bytes).unwrap();
                let Outcome::Ok(found) = found else { panic!() };
                found.entries.iter().map(|entry| entry.cookie).collect()
            }
            false => {
                let found: Outcome<ReaddirOk<'_>, AttrFailure> = decoded(&bytes).unwrap();
                let Outcome::Ok(found) = found else { panic!() };
                found.entries.iter().map(|entry| entry.cookie).collect()
            }
        };
        prop_assert_eq!(found, (1..=pushed as u64).collect::<Vec<_>>());
    }
}

#[test]
fn the_directory_s_entries_are_as_a_client_sees_them() {
    let listed = node::rings::DirectoryEntry {
        file: FileId(77),
        name: b"name"[..].into(),
        kind: wire::FileKind::Regular,
        cookie: 3 << 48 | 8,
        attr: None,
    };
    let entry = nfs::cookies::entry(DIRECTORY, &listed, 1, None);
    assert_eq!((entry.fileid, entry.cookie, entry.attributes), (77, 10, None));
    let mut out = Vec::new();
    entry.put(&mut out);
    assert_eq!(out.len(), 8 + 8 + 8 + 4 + 4);
}
