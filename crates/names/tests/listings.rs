//! Listings that clients keep: the same as long as nothing in them has changed, and not called so when anything has.

use crate::common::ROOT;
use crate::common::array::{Array, directory_elsewhere};
use crate::common::cluster::{Cluster, WHO, create};
use names::{Client, Final, Listing, Plus, WRITE, Who};
use wire::{Errno, FileId, ListingVersion, NodeId, SetAttr, SetTime, Wall};

const BYTES: usize = 32_768;

async fn list(client: &Client, directory: FileId, known: Option<ListingVersion>) -> Listing {
    let listed = client.read_directory_again(&WHO, directory, 0, BYTES, Plus::Attributes, known);
    listed.await.unwrap()
}

/// A directory that a client keeps.
struct Kept {
    directory: FileId,
    listing: Listing,
}

impl Kept {
    async fn of(client: &Client, directory: FileId) -> Kept {
        Kept { directory, listing: list(client, directory, None).await }
    }

    /// What this client sees is what the manager says, and whether that is what was kept.
    async fn is_same(&mut self, client: &Client) -> bool {
        let known = self.listing.version;
        let again = list(client, self.directory, known).await;
        let full = list(client, self.directory, None).await;
        let is_known = again.is_known;
        let seen = if is_known { std::mem::take(&mut self.listing) } else { again };
        assert_eq!((&seen.entries, seen.directory), (&full.entries, full.directory));
        self.listing = full;
        is_known
    }
}

fn mode(mode: u32) -> SetAttr {
    SetAttr { mode: Some(mode), ..SetAttr::default() }
}

#[test]
fn a_listing_is_the_same_until_anything_in_it_changes() {
    let mut cluster = Cluster::new(2);
    let (client, other) = (cluster.client(1), cluster.client(1));
    cluster.run(1, async move {
        let make = async |parent, name: &[u8]| {
            let made = other.make_node(&WHO, parent, name, 0o100_644, 0).await;
            made.unwrap().attr.file
        };
        let d = client.make_directory(&WHO, ROOT, b"d", 0o755).await.unwrap().attr.file;
        let beside = client.make_directory(&WHO, ROOT, b"beside", 0o755).await.unwrap().attr.file;
        let sub = client.make_directory(&WHO, d, b"sub", 0o755).await.unwrap().attr.file;
        let mut files = Vec::new();
        for n in 0..20 {
            files.push(make(d, format!("{n}").as_bytes()).await);
        }
        let f = files[7];
        let mut kept = Kept::of(&client, d).await;
        assert!(kept.is_same(&client).await && kept.is_same(&client).await);
        macro_rules! changes {
            ($what:expr, $change:expr) => {
                $change.await.unwrap();
                assert!(!kept.is_same(&client).await, $what);
                assert!(kept.is_same(&client).await, $what);
            };
        }
        changes!("a new file", other.make_node(&WHO, d, b"new", 0o100_644, 0));
        changes!("a file that goes", other.unlink(&WHO, d, b"new"));
        changes!("another name", other.rename(&WHO, d, b"3", d, b"three", 0));
        changes!("a name that leaves", other.rename(&WHO, d, b"three", beside, b"3", 0));
        changes!("a name that comes", other.rename(&WHO, beside, b"3", d, b"3", 0));
        changes!("a name over another", other.rename(&WHO, d, b"4", d, b"3", 0));
        changes!("a mode", other.set_attr(&WHO, f, mode(0o600), false));
        let owner = SetAttr { uid: Some(7), ..SetAttr::default() };
        changes!("an owner", other.set_attr(&WHO, f, owner, false));
        let time = SetTime::To(Wall { seconds: 5, nanos: 0 });
        let time = SetAttr { mtime: Some(time), ..SetAttr::default() };
        changes!("a time", other.set_attr(&WHO, f, time, false));
        let size = SetAttr { size: Some(5), ..SetAttr::default() };
        changes!("a length", other.set_attr(&WHO, f, size, false));
        changes!("the directory's mode", other.set_attr(&WHO, d, mode(0o700), false));
        changes!("a link elsewhere", other.link(&WHO, f, beside, b"link"));
        changes!("a link that goes", other.unlink(&WHO, beside, b"link"));
        changes!("a directory in one", other.make_directory(&WHO, sub, b"s", 0o755));
        changes!("which goes", other.remove_directory(&WHO, sub, b"s"));
        changes!("an extended attribute", other.set_xattr(&WHO, f, b"user.a", b"1", 0));
        changes!("the directory above", other.make_node(&WHO, ROOT, b"above", 0o100_644, 0));
        // Nothing of a file that is open for writing is for sure.
        other.open(&WHO, f, WRITE).await.unwrap();
        assert!(!kept.is_same(&client).await && !kept.is_same(&client).await);
        let truncations = other.get_attr(f).await.unwrap().truncations;
        let end = Final { size: 1000, used: Some(1000), truncations, ..Final::default() };
        other.close(f, Some(end)).await.unwrap();
        assert!(!kept.is_same(&client).await);
        let written = kept.listing.entries.iter().find(|listed| listed.file == f).unwrap();
        assert_eq!(written.entry.map(|entry| entry.attr.size), Some(1000));
        assert!(kept.is_same(&client).await);
        // What happens beside is none of it.
        for n in 0..50 {
            make(beside, format!("{n}").as_bytes()).await;
        }
        assert!(kept.is_same(&client).await);
        // And who may not read it is told nothing.
        let (stranger, known) = (Who::new(9, 9, &[]), kept.listing.version);
        let asked =
            client.read_directory_again(&stranger, d, 0, BYTES, Plus::Attributes, known).await;
        assert_eq!(asked.map(drop), Err(Errno::EACCES));
    });
}

/// A version is of one part of one directory, and of one incarnation.
#[test]
fn a_version_names_one_part_of_one_incarnation() {
    let mut cluster = Cluster::new(1);
    let client = cluster.client(1);
    let (d, version) = cluster.run(1, async move {
        let d = client.make_directory(&WHO, ROOT, b"d", 0o755).await.unwrap().attr.file;
        let e = client.make_directory(&WHO, ROOT, b"e", 0o755).await.unwrap().attr.file;
        create(&client, b"f", None).await.unwrap();
        let version = list(&client, d, None).await.version;
        assert!(version.is_some());
        let others = [
            client.read_directory_again(&WHO, e, 0, BYTES, Plus::Attributes, version).await,
            client.read_directory_again(&WHO, d, 1, BYTES, Plus::Attributes, version).await,
            client.read_directory_again(&WHO, d, 0, 9000, Plus::Attributes, version).await,
            client.read_directory_again(&WHO, d, 0, BYTES, Plus::Nothing, version).await,
        ];
        assert!(others.iter().all(|listing| !listing.as_ref().unwrap().is_known));
        assert!(list(&client, d, version).await.is_known);
        (d, version)
    });
    cluster.restart();
    let client = cluster.client(1);
    let again = cluster.run(1, async move { list(&client, d, version).await });
    assert!(!again.is_known && again.version.is_some() && again.version != version);
}

/// The changes that another manager made meanwhile are not among those that were counted here.
#[test]
fn a_site_that_was_away_is_listed_anew() {
    let mut array = Array::spread(2, 1);
    let client = array.client(0);
    let (d, version) = array.run_client(0, async move {
        let d = directory_elsewhere(&client).await;
        client.make_node(&WHO, d, b"f", 0o100_644, 0).await.unwrap();
        (d, list(&client, d, None).await.version)
    });
    let own = version.expect("a version").manager;
    let at = usize::from(own.0 - 1);
    array.give(at, d.site(), NodeId(2 - at as u16)).unwrap();
    let client = array.client(0);
    array.run_client(0, async move {
        client.make_node(&WHO, d, b"g", 0o100_644, 0).await.unwrap();
    });
    array.give(1 - at, d.site(), own).unwrap();
    let client = array.client(0);
    let again = array.run_client(0, async move { list(&client, d, version).await });
    assert!(!again.is_known);
    assert!(again.entries.iter().any(|listed| *listed.name == *b"g"));
}
