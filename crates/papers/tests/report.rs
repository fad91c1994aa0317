//! Written reports, read back.

use papers::report::html::{Item, Section, page};
use papers::report::pcapng::{Capture, Direction, LINK_TYPE, Packet};
use papers::report::perfetto::Trace;
use papers::report::svg::{
    Arrow, Axis, BarChart, Boxes, Lane, LineChart, Mark, Node, Series, Span, Stripes, Style,
};
use papers::report::{Activity, Drawing, Figure, Origin, Row, Table, activity};
use serde_json::Value;
use sim::queue::Picos;

fn table() -> Table {
    let fitted = Row {
        paper: Some(308.0),
        formula: Some(306.5),
        simulated: Some(306.481),
        band_percent: Some(3.0),
        origin: Origin::Fitted,
        ..Row::new("store and forward", "us")
    };
    let odd = Row {
        paper: Some(310.0),
        formula: Some(335.0),
        band_percent: Some(3.0),
        note: "E1: 308 + 27, \"a | b\"".into(),
        ..Row::new("fetch", "us")
    };
    let rows = vec![fitted, odd];
    let (name, title, sentence) = ("t".into(), "Latency".into(), "One way.".into());
    Table { name, title, sentence, constants: 3, rows }
}

#[test]
fn a_table_as_text() {
    let expected = "\
Latency
One way.
3 constants fitted for 2 numbers of the paper: 1 fitted, 1 predicted.

what               unit  paper  formula  simulated  error %  band %  within  origin     note
-----------------  ----  -----  -------  ---------  -------  ------  ------  ---------  ---------------------
store and forward  us      308    306.5      306.5    -0.49       3  yes     fitted
fetch              us      310    335.0                8.06       3  NO      predicted  E1: 308 + 27, \"a | b\"
";
    assert_eq!(table().text(), expected);
}

#[test]
fn a_table_as_markdown() {
    let expected = "\
### Latency

One way. 3 constants fitted for 2 numbers of the paper: 1 fitted, 1 predicted.

| what | unit | paper | formula | simulated | error % | band % | within | origin | note |
| --- | --- | ---: | ---: | ---: | ---: | ---: | --- | --- | --- |
| store and forward | us | 308 | 306.5 | 306.5 | -0.49 | 3 | yes | fitted |  |
| fetch | us | 310 | 335.0 |  | 8.06 | 3 | NO | predicted | E1: 308 + 27, \"a \\| b\" |
";
    assert_eq!(table().markdown(), expected);
}

/// RFC 4180, read by its rules.
fn read_csv(text: &str) -> Vec<Vec<String>> {
    let mut rows = vec![vec![String::new()]];
    let mut quoted = false;
    let mut characters = text.chars().peekable();
    while let Some(character) = characters.next() {
        let row = rows.last_mut().unwrap();
        match character {
            '"' if quoted && characters.peek() == Some(&'"') => {
                characters.next();
                row.last_mut().unwrap().push('"');
            }
            '"' => quoted = !quoted,
            ',' if !quoted => row.push(String::new()),
            '\r' if !quoted => assert_eq!(characters.next(), Some('\n')),
            _ => row.last_mut().unwrap().push(character),
        }
        if character == '\r' && !quoted && characters.peek().is_some() {
            rows.push(vec![String::new()]);
        }
    }
    rows
}

#[test]
fn a_table_as_csv_with_all_digits() {
    let rows = read_csv(&table().csv());
    assert_eq!(rows.len(), 3);
    assert!(rows.iter().all(|row| row.len() == 10));
    assert_eq!(rows[1][4], "306.481");
    assert_eq!(rows[2][9], "E1: 308 + 27, \"a | b\"");
    assert_eq!(rows[1][5].parse::<f64>().unwrap(), table().rows[0].error_percent().unwrap());
}

#[test]
fn a_table_as_json() {
    let value: Value = serde_json::from_str(&table().json()).unwrap();
    assert_eq!(value["rows"][0]["simulated"], 306.481);
    assert_eq!(value["rows"][0]["origin"], "fitted");
    assert_eq!(value["rows"][0]["within"], true);
    assert_eq!(value["rows"][1]["within"], false);
    assert_eq!(value["rows"][1]["simulated"], Value::Null);
    assert_eq!(value["constants"], 3);
}

/// The names of the elements, if every one is closed in order and every `&` and `<` of a text is escaped.
fn elements(xml: &str) -> Vec<String> {
    let (mut open, mut all) = (Vec::new(), Vec::new());
    let mut rest = xml;
    while let Some(at) = rest.find('<') {
        check_entities(&rest[..at]);
        let end = at + rest[at..].find('>').expect("a tag ends");
        let tag = &rest[at + 1..end];
        assert!(!tag.contains('<'), "a tag in a tag: {tag}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        check_entities(tag);
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "closed in order");
        } else if !tag.starts_with('!') {
            let name = tag.split([' ', '/']).next().unwrap().to_string();
            all.push(name.clone());
            if !tag.ends_with('/') && name != "meta" {
                open.push(name);
            }
        }
    }
    assert_eq!(open, [""; 0], "every element is closed");
    all
}

fn check_entities(text: &str) {
    for (at, _) in text.match_indices('&') {
        let known = ["&amp;", "&lt;", "&gt;", "&quot;"];
        assert!(known.iter().any(|entity| text[at..].starts_with(entity)), "{text}");
    }
}

fn figure(drawing: Drawing) -> Figure {
    let sentence = "Why <this> & \"that\" are as they are, in a sentence that is long enough to need more than \
                    one line of the figure, which it is after these words at the latest.";
    Figure { name: "f".into(), title: "A < B".into(), sentence: sentence.into(), drawing }
}

fn stripes() -> Stripes {
    let span = |start, end, kind, label: &str| Span {
        start: Picos::nanos(start),
        end: Picos::nanos(end),
        kind,
        label: label.into(),
    };
    let lane = |name: &str, spans| Lane { name: name.into(), spans };
    Stripes {
        lanes: vec![
            lane("hostTx", vec![span(0, 62_061, 1, "A")]),
            lane("netTx", vec![span(500, 1_500, 0, "c"), span(1_500, 62_500, 1, "A1")]),
        ],
        kinds: vec!["control".into(), "payload".into()],
    }
}

fn drawings() -> [Drawing; 4] {
    let series = |style, colour| Series {
        name: format!("series {colour}"),
        points: vec![(0.0, 1.0), (10.0, 60.0), (20.0, 300.0)],
        style,
        colour,
    };
    let lines = LineChart {
        x: Axis::new("load", "%"),
        y: Axis { most: Some(100.0), ..Axis::new("cache", "KB") },
        series: (0..7).flat_map(|c| [series(Style::Line, c), series(Style::Points, c)]).collect(),
        marks: vec![Mark { at: 64.0, label: "64 KB".into() }],
    };
    let bars = BarChart {
        y: Axis::new("bandwidth", "MB/s"),
        categories: vec!["LANai-4".into(), "LANai-7 & 9".into()],
        series: vec![
            ("off".into(), vec![Some(49.9), None]),
            ("on".into(), vec![Some(62.9), Some(89.1)]),
        ],
        papers: vec![(0, 1, 63.0)],
    };
    let node = |x, name: &str| Node {
        at: (x, 60.0),
        size: (100.0, 50.0),
        lines: vec![name.into(), "1 < 2".into()],
        colour: Some(1),
    };
    let arrow = |from, to| Arrow { from, to, label: "a".into(), bend: 20.0, label_at: (0.0, 0.0) };
    let boxes = Boxes {
        height: 120.0,
        nodes: vec![node(100.0, "free"), node(400.0, "fill")],
        arrows: vec![arrow(0, 1), arrow(1, 0)],
        words: vec![],
    };
    [Drawing::Lines(lines), Drawing::Bars(bars), Drawing::Stripes(stripes()), Drawing::Boxes(boxes)]
}

#[test]
fn figures_are_well_formed_and_show_everything() {
    let count =
        |svg: &str, name: &str| elements(svg).iter().filter(|element| *element == name).count();
    let [lines, bars, stripes, boxes] = drawings().map(|drawing| figure(drawing).svg());
    assert_eq!(count(&lines, "polyline"), 7 + 7, "each curve and its sample");
    assert!(lines.contains("64 KB") && lines.contains("load (%)") && lines.contains("cache (KB)"));
    assert_eq!(count(&bars, "rect"), 1 + 2 + 3 + 2, "background, legend, bars, the paper");
    assert_eq!(count(&stripes, "rect"), 1 + 2 + 3);
    assert!(stripes.contains("payload A: 0.00 to 62.06 µs"));
    assert_eq!(count(&boxes, "path"), 2);
    assert!(boxes.contains("1 &lt; 2"));
}

/// A shape outside the figure would not be seen.
#[test]
fn nothing_lies_outside_its_figure() {
    for drawing in drawings() {
        let svg = figure(drawing).svg();
        let number = |tag: &str, name: &str| -> Option<f64> {
            let at = tag.find(&format!(" {name}=\""))? + name.len() + 3;
            tag[at..].split('"').next()?.parse().ok()
        };
        let height = number(&svg, "height").unwrap();
        for tag in svg.split('<').filter(|tag| tag.starts_with("text") || tag.starts_with("rect")) {
            let (x, y) = (number(tag, "x").unwrap_or(0.0), number(tag, "y").unwrap_or(0.0));
            assert!((0.0..=780.0).contains(&x) && (0.0..=height).contains(&y), "{tag}");
        }
    }
}

#[test]
fn one_page_loads_nothing() {
    let item = |name: &str, figure, table| Item {
        name: name.into(),
        title: "x & y".into(),
        figure,
        table,
    };
    let [lines, ..] = drawings().map(figure);
    let items = vec![item("a", Some(lines), Some(table())), item("b", None, Some(table()))];
    let section = Section { title: "HPDC & more".into(), items };
    let html = page("Title <1>", "Words.", std::slice::from_ref(&section));
    elements(&html);
    assert_eq!(html, page("Title <1>", "Words.", &[section]), "the same bytes");
    for forbidden in ["<script", "src=", "url(", "@import", "<link"] {
        assert!(!html.contains(forbidden), "{forbidden}");
    }
    let addresses: Vec<&str> =
        html.match_indices("http").map(|(at, _)| &html[at..at + 27]).collect();
    assert!(addresses.iter().all(|address| address.starts_with("http://www.w3.org/2000/svg")));
    for anchor in ["a", "b"] {
        assert!(
            html.contains(&format!("href=\"#{anchor}\""))
                && html.contains(&format!("id=\"{anchor}\""))
        );
    }
}

#[test]
fn a_trace_has_a_track_for_each_engine() {
    let mut trace = Trace::default();
    let (host, net) = (trace.track("sender", "host \"DMA\""), trace.track("sender", "net send"));
    let far = trace.track("receiver", "net receive");
    assert_eq!(trace.track("sender", "net send"), net);
    trace.slice(host, "payload", (Picos(1), Picos(62_060_607)), &[("bytes", "8192".into())]);
    trace.instant(far, "interrupt", Picos::micros(63), &[]);
    trace.counter(net, "buffered", Picos::micros(64), 512);
    let value: Value = serde_json::from_str(&trace.json()).unwrap();
    let events = value["traceEvents"].as_array().unwrap();
    let of = |phase: &str| events.iter().filter(|event| event["ph"] == phase).collect::<Vec<_>>();
    let names: Vec<&Value> = of("M").iter().map(|event| &event["args"]["name"]).collect();
    assert_eq!(names, ["sender", "receiver", "host \"DMA\"", "net send", "net receive"]);
    let slice = of("X")[0];
    assert_eq!((slice["ts"].as_f64(), slice["dur"].as_f64()), (Some(1e-6), Some(62.060606)));
    assert_eq!((&slice["pid"], &slice["tid"]), (&1.into(), &1.into()));
    assert_eq!(slice["args"]["bytes"], "8192");
    assert_eq!((&of("i")[0]["pid"], &of("i")[0]["tid"]), (&2.into(), &3.into()));
    assert_eq!(of("C")[0]["args"]["value"], 512);
    assert_eq!(
        serde_json::from_str::<Value>(&Trace::default().json()).unwrap()["traceEvents"],
        Value::Array(vec![])
    );
}

#[test]
fn stripes_are_a_trace_too() {
    let trace = Trace::from(&stripes());
    let value: Value = serde_json::from_str(&trace.json()).unwrap();
    let events = value["traceEvents"].as_array().unwrap();
    let slices: Vec<&Value> = events.iter().filter(|event| event["ph"] == "X").collect();
    assert_eq!(slices.len(), 3);
    assert_eq!(
        (slices[2]["name"].as_str(), slices[2]["dur"].as_f64()),
        (Some("payload"), Some(61.0))
    );
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

/// Kind and body of each block; both lengths must agree.
fn blocks(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let mut blocks = Vec::new();
    while !bytes.is_empty() {
        let (kind, length) = (word(bytes, 0), word(bytes, 4) as usize);
        assert_eq!(length % 4, 0);
        assert_eq!(word(bytes, length - 4) as usize, length);
        blocks.push((kind, bytes[8..length - 4].to_vec()));
        bytes = &bytes[length..];
    }
    blocks
}

/// Code and value of each option.
fn options(mut bytes: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let mut options = Vec::new();
    loop {
        let (code, length) = (word(bytes, 0) as u16, (word(bytes, 0) >> 16) as usize);
        if code == 0 {
            assert_eq!((length, bytes.len()), (0, 4), "the end is at the end");
            return options;
        }
        options.push((code, bytes[4..4 + length].to_vec()));
        bytes = &bytes[4 + length.next_multiple_of(4)..];
    }
}

#[test]
fn a_capture_read_back() {
    let mut capture = Capture::default();
    let (left, right) = (capture.interface("sender"), capture.interface("receiver"));
    let control: Vec<u8> = (0..130).collect();
    let at = Picos(5_000_000_000_123_456);
    let packet = Packet {
        interface: left,
        at,
        direction: Direction::Outbound,
        bytes: &control,
        length: 128 + 8_192,
        comment: "request 7",
    };
    capture.packet(packet);
    capture.packet(Packet {
        interface: right,
        direction: Direction::Inbound,
        comment: "",
        ..packet
    });
    let blocks = blocks(&capture.into_bytes());
    let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
    assert_eq!(kinds, [0x0a0d_0d0a, 1, 1, 6, 6]);
    assert_eq!((word(&blocks[0].1, 0), word(&blocks[0].1, 4)), (0x1a2b_3c4d, 1));
    assert_eq!(word(&blocks[1].1, 0), u32::from(LINK_TYPE));
    let interface = options(&blocks[2].1[8..]);
    assert_eq!(interface, [(2, b"receiver".to_vec()), (9, vec![9])]);
    let body = &blocks[3].1;
    let nanos = u64::from(word(body, 4)) << 32 | u64::from(word(body, 8));
    assert_eq!((word(body, 0), nanos), (0, at.0 / 1_000));
    assert_eq!((word(body, 12), word(body, 16)), (130, 8_320));
    assert_eq!(body[20..150], control[..]);
    assert_eq!(options(&body[152..]), [(2, vec![2, 0, 0, 0]), (1, b"request 7".to_vec())]);
    assert_eq!(options(&blocks[4].1[152..]), [(2, vec![1, 0, 0, 0])]);
    assert_eq!(word(&blocks[4].1, 0), 1);
}

#[test]
fn one_log_is_stripes_and_a_trace() {
    let activity = |engine: &str, kind: &str, start, end| Activity {
        machine: "sender".into(),
        engine: engine.into(),
        kind: kind.into(),
        start: Picos::micros(start),
        end: Picos::micros(end),
        label: "A".into(),
        details: vec![("bytes", "128".into())],
    };
    let log = [
        activity("hostTx", "payload", 10, 70),
        activity("netTx", "control", 11, 12),
        activity("netTx", "payload", 12, 74),
    ];
    let stripes = activity::stripes(&log);
    assert_eq!(stripes.kinds, ["payload", "control"]);
    let lanes: Vec<_> =
        stripes.lanes.iter().map(|lane| (lane.name.as_str(), lane.spans.len())).collect();
    assert_eq!(lanes, [("sender hostTx", 1), ("sender netTx", 2)]);
    assert_eq!(stripes.lanes[1].spans[1].end, Picos::micros(64), "times from the first");
    let value: Value = serde_json::from_str(&activity::trace(&log).json()).unwrap();
    let events = value["traceEvents"].as_array().unwrap();
    assert_eq!(events.len(), 3 + 3, "a name for the machine and each engine, and the slices");
    assert_eq!(events[5]["args"]["bytes"], "128");
}
