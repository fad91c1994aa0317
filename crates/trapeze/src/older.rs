//! A manager whose store is not the newest.

use crate::output;
use files::cluster::Services;
use names::Older;
use node::Cx;

/// The message about it: which server knows better, since when, and what to do.
pub fn older_text(older: &Older, server: Option<&str>) -> String {
    let Older { server: id, seen, own } = older;
    let server = server.map_or_else(|| id.to_string(), str::to_string);
    let when = output::at(seen.told, 0);
    let what = if seen.lineage > own.lineage {
        format!(
            "the manager's store is of lineage {}, and {server} was told on {when} of lineage {}: the names were restored \
             since, and this is the store of before",
            own.lineage, seen.lineage
        )
    } else if seen.sequence <= own.sequence {
        format!(
            "the manager's store is not the one that acknowledged change {}, which {server} was told of on {when}: it \
             went on from an older copy",
            seen.sequence
        )
    } else {
        format!(
            "the manager's store is older than what it has acknowledged: it ends with change {}, and {server} was told on \
             {when} of change {}",
            own.sequence, seen.sequence
        )
    };
    format!(
        "{what}. Nothing is served from it, so that nothing made since is lost. Stop the manager, bring back the newest \
         copy of its directory, and start it again. If there is none newer: `trapeze restore BACKUP --dir DIR \
         --replace`, or, to go on with this one, `trapeze restore --accept --dir DIR`"
    )
}

/// Says so when that turns out, at the start or when a server comes that knows.
pub(super) fn watch(cx: &Cx, services: &Services) {
    let Some(manager) = services.manager.clone() else { return };
    let members = services.members.clone();
    cx.spawn("older store", async move {
        let older = manager.refused().await;
        let name = members.as_ref().and_then(|members| name_of(members, &older));
        eprintln!("{}", older_text(&older, name.as_deref()));
    });
}

/// The name of the server that knows better.
pub fn name_of(members: &members::Service, older: &Older) -> Option<String> {
    members.registry().member(older.server).map(|member| member.name.clone())
}

#[cfg(test)]
mod tests {
    use super::*;
    use stripe::Witness;
    use wire::NodeId;

    #[test]
    fn the_server_the_time_and_both_changes_are_named() {
        let seen =
            Witness { lineage: 0, sequence: 93, store: 5, incarnation: 6, told: 951_782_400 };
        let own = Witness { sequence: 71, ..seen };
        let older = Older { server: NodeId(3), seen, own };
        let text = older_text(&older, Some("io2"));
        let parts = ["change 71", "io2", "2000-02-29T00:00:00", "change 93", "--accept --dir"];
        assert!(parts.iter().all(|part| text.contains(part)), "{text}");
        let later = Older { seen: Witness { lineage: 2, ..seen }, ..older };
        let text = older_text(&later, None);
        assert!(text.contains("of lineage 0") && text.contains("of lineage 2"), "{text}");
        let text = older_text(&Older { own: Witness { sequence: 99, ..seen }, ..older }, None);
        assert!(text.contains("change 93") && text.contains("an older copy"), "{text}");
    }
}
