//! Behaviour that every world must show: the same test bodies over the same services, simulated and real.
//!
//! A body is an async function over a [`Client`], which asks one front for file operations. It panics where an answer
//! is wrong, as a test does. The world drives it: [`Asks`] is the front's end of a body, to be polled beside the node.
//!
//! ```text
//!   body ──ask──► Asks ──take_request──► node.front_push
//!        ◄──────       ◄──done───────── node.take_front_done
//! ```

pub mod basic;
pub mod client;
pub mod names;
pub mod random;
pub mod shared;

pub use client::{Ask, Asks, Client};

/// Runs every body that needs one client and no faults, each in a directory of its own under `parent`.
pub async fn all<A: Ask>(client: &Client<A>, parent: wire::FileId) {
    basic::patterns_across_stripes(client, client.scratch(parent, "patterns").await).await;
    basic::overwrites_and_unaligned(client, client.scratch(parent, "overwrites").await).await;
    basic::holes_are_zeros(client, client.scratch(parent, "punched").await).await;
    basic::truncation(client, client.scratch(parent, "truncation").await).await;
    basic::truncation_of_unsent(client, client.scratch(parent, "unsent").await).await;
    basic::append(client, client.scratch(parent, "append").await).await;
    basic::many_small_files(client, client.scratch(parent, "small").await).await;
    basic::allocation_and_seeking(client, client.scratch(parent, "allocation").await).await;
    basic::holes(client, client.scratch(parent, "holes").await).await;
    basic::room_of_holes(client, client.scratch(parent, "room").await).await;
    basic::too_long_files(client, client.scratch(parent, "long").await).await;
    basic::times(client, client.scratch(parent, "times").await).await;
    basic::groups_of_callers(client, client.scratch(parent, "groups").await).await;
    basic::modes_of_opening(client, client.scratch(parent, "modes").await).await;
    names::rename_over_an_open_file(client, client.scratch(parent, "rename").await).await;
    names::unlinked_files_go_on(client, client.scratch(parent, "unlink").await).await;
    let unnamed = client.scratch(parent, "made-unnamed").await;
    names::files_are_made_without_a_name(client, unnamed).await;
    names::hard_links(client, client.scratch(parent, "links").await).await;
    names::extended_attributes(client, client.scratch(parent, "xattr").await).await;
    names::big_directory(client, client.scratch(parent, "list").await).await;
    let renames = client.scratch(parent, "listing").await;
    names::a_listing_ends_while_its_files_are_renamed(client, renames).await;
    names::any_names(client, client.scratch(parent, "names").await).await;
    names::kinds_of_files(client, client.scratch(parent, "kinds").await).await;
    let unnamed = client.scratch(parent, "unnamed").await;
    names::what_has_no_bytes_goes_on_without_a_name(client, unnamed).await;
    names::errors(client, client.scratch(parent, "errors").await).await;
    shared::locks_of_two_owners(client, client.scratch(parent, "locks").await).await;
    shared::a_waiting_lock(client, client.scratch(parent, "waiting").await).await;
    shared::locks_of_open_files(client, client.scratch(parent, "open-locks").await).await;
    shared::many_waiting_locks(client, client.scratch(parent, "line").await).await;
}

/// Runs every body that needs two clients of one volume and no faults.
pub async fn all_of_two<A: Ask, B: Ask>(one: &Client<A>, two: &Client<B>, parent: wire::FileId) {
    shared::close_to_open(one, two, one.scratch(parent, "close").await).await;
    shared::length_while_writing(one, two, one.scratch(parent, "length").await).await;
    shared::appends_in_turns(one, two, one.scratch(parent, "appends").await).await;
    shared::truncated_elsewhere(one, two, one.scratch(parent, "elsewhere").await).await;
    shared::replaced_elsewhere(one, two, one.scratch(parent, "replaced").await).await;
    shared::locks_of_two_clients(one, two, one.scratch(parent, "cluster-locks").await).await;
}
