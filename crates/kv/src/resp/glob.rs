//! Patterns of keys, as SCAN and KEYS take them (redis.io, "KEYS").

/// Whether a key fits: `*` any bytes, `?` one, `[a-c]` or `[^a-c]` one of a set, `\` the next byte itself.
pub fn fits(pattern: &[u8], key: &[u8]) -> bool {
    // Position to retry from when the rest behind the last `*` does not match.
    let mut retry: Option<(usize, usize)> = None;
    let (mut p, mut k) = (0, 0);
    loop {
        if pattern.get(p) == Some(&b'*') {
            retry = Some((p, k));
            p += 1;
            continue;
        }
        let next = key.get(k).and_then(|byte| one(&pattern[p..], *byte));
        match (next, retry) {
            (Some(step), _) => (p, k) = (p + step, k + 1),
            (None, _) if p == pattern.len() && k == key.len() => return true,
            (None, Some((star, from))) if from < key.len() => {
                retry = Some((star, from + 1));
                (p, k) = (star + 1, from + 1);
            }
            _ => return false,
        }
    }
}

/// Bytes of the pattern's first part, if it takes `byte`.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [] => None,
        [b'?', ..] => Some(1),
        [b'\\', literal, ..] => (*literal == byte).then_some(2),
        [b'[', set @ ..] => {
            let end = set.iter().skip(1).position(|other| *other == b']')? + 1;
            let (not, members) = match set[..end].strip_prefix(b"^") {
                Some(members) => (true, members),
                None => (false, &set[..end]),
            };
            (has(members, byte) != not).then_some(end + 2)
        }
        [literal, ..] => (*literal == byte).then_some(1),
    }
}

fn has(members: &[u8], byte: u8) -> bool {
    let ranges = members.windows(3).any(|m| m[1] == b'-' && (m[0]..=m[2]).contains(&byte));
    ranges || members.contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn patterns_fit_as_in_redis() {
        for (pattern, key, expected) in [
            ("*", "", true),
            ("h?llo", "hello", true),
            ("h*llo", "heeello", true),
            ("h[ae]llo", "hallo", true),
            ("h[^e]llo", "hello", false),
            ("h[a-c]llo", "hbllo", true),
            ("h\\*llo", "h*llo", true),
            ("h\\*llo", "hello", false),
            ("user:*:name", "user:1:2:name", true),
            ("a*b*c", "axbxbxc", true),
            ("a*b*c", "axbxbx", false),
            ("[", "[", false),
            ("", "x", false),
        ] {
            assert_eq!(fits(pattern.as_bytes(), key.as_bytes()), expected, "{pattern} {key}");
        }
    }
}
