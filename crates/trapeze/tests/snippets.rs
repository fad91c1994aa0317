//! The pieces of Rust on the pages on network memory: they compile, and are there as they are here.
#![allow(dead_code, unused_imports, unused_variables)]

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn a_region() -> Outcome {
    // begin
    use region::{Access, Advice, FileBacking, Region, RegionConfig};

    let backing = FileBacking::open("/var/tmp/table".as_ref(), 64 << 30)?;
    let frames = (4 << 30) / 4096; // 4 GiB of 64 GiB
    let region = Region::map(64 << 30, RegionConfig::new(frames), &backing)?;
    region.words()[12_345].fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    region.advise(0, 1 << 20, Advice::WillNeed)?;
    region.sync()?;
    // end
    Ok(())
}

fn a_region_of_peers() -> Outcome {
    // begin
    use live::link::Security;
    use region::peer::{PeerConfig, Peers};
    use region::{Region, RegionConfig};

    let holders = ["tcp:10.0.0.2:7000", "tcp:10.0.0.3:7000", "tcp:10.0.0.4:7000"];
    let holders = holders.iter().map(|at| at.parse()).collect::<Result<_, _>>()?;
    let peers = Peers::new(PeerConfig::new(holders, Security::Insecure)?)?; // two copies of every version
    let frames = (4 << 30) / 4096;
    let region = Region::map(64 << 30, RegionConfig::new(frames), &peers)?;
    // end
    Ok(())
}

use netmem::service::Hint;
use netmem::{PageId, Run, Service, Version};

fn what_will_be_used(service: Service, [first, other]: [PageId; 2], pages: &[PageId]) -> Outcome {
    // begin
    let plan = service.plan_use(Version(0), 4096)?; // any version, pages of 4 KiB
    plan.add(Run::new(first, 1000))?; // a thousand adjacent pages
    plan.add(Run::between(other, 9_000, 3))?; // every third page up to index 9,000
    plan.add_list(pages); // any order
    // ... service.get(..) as before; dropping `plan` withdraws the announcements
    service.hint_run(Run::new(first, 16), Hint::WillNeed { bytes: 4096 }); // soon
    service.hint_run(Run::new(first, 1000), Hint::DontNeed); // not soon: clean copies leave
    // end
    Ok(())
}

#[test]
fn the_page_has_what_compiles() {
    let page = concat!(
        include_str!("../../../docs/src/memory.md"),
        include_str!("../../../docs/src/regions.md")
    );
    let here = include_str!("snippets.rs");
    let pieces = here.split("    // begin\n").skip(1).map(|rest| rest.split("    // end\n").next());
    let pieces: Vec<String> = pieces.map(|piece| dedented(piece.unwrap())).collect();
    assert_eq!(pieces.len(), page.matches("```rust\n").count());
    for piece in pieces {
        assert!(page.contains(&format!("```rust\n{piece}```")), "not on the page:\n{piece}");
    }
}

fn dedented(piece: &str) -> String {
    piece.lines().map(|line| format!("{}\n", line.strip_prefix("    ").unwrap_or(line))).collect()
}
