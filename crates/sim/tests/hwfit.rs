// temporary: searches
#[path = "hardware/stations.rs"]
mod stations;
use nic::Policy;
use sim::hardware::bus::Bus;
use sim::hardware::catalogue;
use sim::hardware::catalogue::Firmware;
use sim::hardware::measure::*;
use sim::hardware::world::program::Copies;
use sim::queue::Picos;
use sim::random::Random;
use stations::*;

fn set(station: &mut Station, setup: (u64, u64), fw: Firmware) {
    if let Bus::Pci(pci) = &mut station.machine.bus {
        pci.read_setup = Picos::nanos(setup.0);
        pci.write_setup = Picos::nanos(setup.1);
    }
    station.nic.costs = sim::hardware::world::World::<sim::hardware::programs::Role>::costs(&fw);
}
fn evals(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|t| t.parse().ok()).unwrap_or(default)
}
type Six = Vec<(f64, f64, f64, f64)>;
fn table(m: &str, setup: u64, fw: Firmware) -> Six {
    let link = catalogue::link("myrinet").unwrap();
    let papers = if m == "piii450" {
        [(124.0, 77.0), (217.0, 110.0), (112.0, 110.0)]
    } else {
        [(129.0, 71.0), (236.0, 93.0), (119.0, 93.0)]
    };
    [Policy::FixedAll { size: 1408 }, Policy::StoreForward, Policy::adaptive(512)]
        .into_iter()
        .zip(papers)
        .map(|(policy, p)| {
            let mut s = hoti_contention(m, policy);
            set(&mut s, (setup, setup), fw);
            (one_way(&s, link, 8192), stream(&s, &s, link, 8192) / 1e6, p.0, p.1)
        })
        .collect()
}
#[test]
fn search_hoti() {
    let mut r = Random::new(5, "hoti");
    let mut found: Vec<(f64, String)> = vec![];
    for same in [true, false] {
        for _ in 0..evals("N1", 150) {
            let mut n = |least, most| r.within(least, most) as u32;
            let (h, s, v, sp, rp) = (n(10, 120), n(10, 120), n(0, 80), n(0, 100), n(0, 100));
            let fw = if same {
                Firmware {
                    host: h,
                    net_send: h,
                    net_receive: h,
                    send_packet: sp,
                    receive_packet: sp,
                    ..Firmware::default()
                }
            } else {
                Firmware {
                    host: h,
                    net_send: s,
                    net_receive: v,
                    send_packet: sp,
                    receive_packet: rp,
                    ..Firmware::default()
                }
            };
            let setup = [0, 300, 600, 1000, 1500, 2000, 3000][n(0, 6) as usize];
            let p3 = table("piii450", setup, fw);
            // the shift that balances the latencies' relative errors
            let shift = (-40..40)
                .min_by_key(|k| {
                    p3.iter()
                        .map(|x| (((x.0 + *k as f64) / x.2 - 1.0).abs() * 1e6) as u64)
                        .max()
                        .unwrap()
                })
                .unwrap() as f64;
            let err = |x: &(f64, f64, f64, f64)| {
                [((x.0 + shift) / x.2 - 1.0) * 100.0, (x.1 / x.3 - 1.0) * 100.0]
            };
            let worst = p3.iter().flat_map(err).map(f64::abs).fold(0.0, f64::max);
            if worst < 9.0 {
                let mi = table("miata500", setup, fw);
                let show = |t: &Six| {
                    t.iter().flat_map(err).map(|e| format!("{e:+.1}")).collect::<Vec<_>>().join(" ")
                };
                let wm = mi.iter().flat_map(err).map(f64::abs).fold(0.0, f64::max);
                println!("+"); found.push((worst, format!("same {same} {worst:.1} miata {wm:.1} h {h} s {s} v {v} sp {sp} rp {rp} setup {setup} shift {shift}: {} | {}", show(&p3), show(&mi))));
            }
        }
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found.iter().take(25).for_each(|(_, line)| println!("{line}"));
}
fn six(setup: (u64, u64), fw: Firmware, width: u64) -> Vec<(f64, f64)> {
    let link = catalogue::link("myrinet").unwrap();
    let mut all = vec![];
    for (board, off, on) in
        [("lanai4", 49.89, 62.94), ("lanai7", 52.69, 89.10), ("lanai9", 54.23, 106.43)]
    {
        let mut end = end_host(4096, 4096);
        set(&mut end, setup, fw);
        let e = if board == "lanai4" { 128 } else { 384 };
        for (entries, copies, paper) in [(None, Copies::Ignore, off), (Some(e), Copies::Use, on)] {
            let mut mid = forwarder("piii433", board, entries, 4096);
            set(&mut mid, setup, fw);
            if board != "lanai4" { mid.board.width = width; }
            all.push((forward(&end, &mid, link, 4096, copies).rate / 1e6, paper));
        }
    }
    all
}
fn fig7(setup: (u64, u64), fw: Firmware) -> String {
    let link = catalogue::link("myrinet").unwrap();
    let mut end = end_host(4096, 4096);
    set(&mut end, setup, fw);
    let mut line = format!("direct {:.0}", stream(&end, &end, link, 4096) / 1e6);
    for board in ["lanai7", "lanai9"] {
        for (entries, copies) in [(None, Copies::Ignore), (Some(384), Copies::Use)] {
            let mut mid = forwarder("piii733", board, entries, 4096);
            set(&mut mid, setup, fw);
            line += &format!(" {:.0}", forward(&end, &mid, link, 4096, copies).rate / 1e6);
        }
    }
    line
}
#[test]
fn search_forward() {
    let mut r = Random::new(6, "forward");
    let mut found: Vec<(f64, String)> = vec![];
    for _ in 0..evals("N2", 130) {
        let setup = 500 * r.within(1, 9);
        let width = [4, 8, 8, 8][r.index(4)];
        let start = r.within(5, 85) as u32;
        let rest = 550u32.saturating_sub(6 * start + 30);
        let share = 25 * r.within(0, 4) as u32;
        let rp = rest * share / 100;
        let fw = Firmware {
            host: start,
            net_send: start,
            net_receive: start,
            send_packet: rest - rp,
            receive_packet: rp,
            cache: 15,
            ..Firmware::default()
        };
        let rows = six((setup, setup), fw, width);
        let err = |x: &(f64, f64)| (x.0 / x.1 - 1.0) * 100.0;
        let worst = rows.iter().map(err).map(f64::abs).fold(0.0, f64::max);
        if worst < 14.0 {
            let show = rows
                .iter()
                .map(|x| format!("{:.1} {:+.1}", x.0, err(x)))
                .collect::<Vec<_>>()
                .join("  ");
            found.push((
                worst,
                format!(
                    "{worst:.1} width {width} setup {setup} start {start} rp {rp} sp {}: {show} | {}",
                    rest - rp,
                    fig7((setup, setup), fw)
                ),
            ));
        }
    }
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found.iter().take(30).for_each(|(_, line)| println!("{line}"));
}
