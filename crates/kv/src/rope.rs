//! Bytes in pieces: text, and parts of values that are not copied.

use crate::body::Piece;

/// A piece.
#[derive(Clone, Debug)]
pub(crate) enum Chunk {
    Text(Vec<u8>),
    Value(Piece),
}

impl Chunk {
    pub fn bytes(&self) -> &[u8] {
        match self {
            Chunk::Text(text) => text,
            Chunk::Value(piece) => piece.bytes(),
        }
    }

    /// All but the last `count` bytes.
    fn cut(&mut self, count: usize) {
        let len = self.bytes().len() - count;
        match self {
            Chunk::Text(text) => text.truncate(len),
            Chunk::Value(piece) => piece.truncate(len),
        }
    }
}

/// Pieces, one behind the other.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rope(Vec<Chunk>);

impl Rope {
    pub fn of_text(text: impl Into<Vec<u8>>) -> Rope {
        Rope(vec![Chunk::Text(text.into())])
    }

    pub fn of_chunks(chunks: Vec<Chunk>) -> Rope {
        Rope(chunks)
    }

    pub fn len(&self) -> usize {
        self.pieces().map(<[u8]>::len).sum()
    }

    /// Bytes that are in no frame.
    pub fn text_bytes(&self) -> usize {
        let texts = self.0.iter().filter(|chunk| matches!(chunk, Chunk::Text(_)));
        texts.map(|chunk| chunk.bytes().len()).sum()
    }

    pub fn pieces(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(Chunk::bytes)
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.pieces().flatten().copied().collect()
    }

    pub fn text(&mut self, text: &[u8]) {
        match self.0.last_mut() {
            Some(Chunk::Text(last)) => last.extend_from_slice(text),
            _ => self.0.push(Chunk::Text(text.to_vec())),
        }
    }

    pub fn join(&mut self, other: Rope) {
        self.0.extend(other.0);
    }

    pub fn into_chunks(self) -> Vec<Chunk> {
        self.0
    }

    /// Takes off this end, if it is the end; whether it was.
    pub fn strip_end(&mut self, end: &[u8]) -> bool {
        let mut last = vec![0; end.len()];
        let is_end = self.len().checked_sub(end.len()).is_some_and(|from| {
            copy_from(self.pieces(), from, &mut last);
            last == end
        });
        let mut left = if is_end { end.len() } else { 0 };
        while left > 0 {
            let last = self.0.last_mut().expect("as long as bytes are left");
            let count = left.min(last.bytes().len());
            last.cut(count);
            left -= count;
            self.0.pop_if(|last| last.bytes().is_empty());
        }
        is_end
    }
}

/// Copies what lies from byte `from` on, as far as there is room for it; how many bytes.
pub(crate) fn copy_from<'a>(
    pieces: impl Iterator<Item = &'a [u8]>,
    mut from: usize,
    into: &mut [u8],
) -> usize {
    let mut at = 0;
    for piece in pieces {
        let rest = &piece[from.min(piece.len())..];
        from -= piece.len() - rest.len();
        let count = rest.len().min(into.len() - at);
        into[at..at + count].copy_from_slice(&rest[..count]);
        at += count;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::Body;
    use endpoint::{Frames, HeapRegion};

    fn rope(pieces: &[&[u8]]) -> Rope {
        let frames = Frames::new(HeapRegion::new(8));
        let mut rope = Rope::default();
        for (number, piece) in pieces.iter().enumerate() {
            match number % 2 {
                0 => rope.join(Rope::of_text(*piece)),
                _ => {
                    let body = Body::new(vec![frames.copy_of(piece).unwrap()], None);
                    rope.0.extend(body.pieces().map(Chunk::Value));
                }
            }
        }
        rope
    }

    #[test]
    fn any_part_is_copied() {
        let rope = rope(&[b"ab", b"cde", b"", b"f", b"ghi"]);
        for (from, to) in (0..10).flat_map(|from| (from..10).map(move |to| (from, to))) {
            let mut into = vec![0; to - from];
            assert_eq!(copy_from(rope.pieces(), from, &mut into), to.min(9) - from.min(9));
            assert_eq!(into[..to.min(9) - from.min(9)], b"abcdefghi"[from.min(9)..to.min(9)]);
        }
    }

    #[test]
    fn an_end_in_several_pieces_is_taken_off() {
        for pieces in [&[&b"xEND"[..], b"\r\n"][..], &[b"xE", b"N", b"D\r", b"\n"], &[b"xEND\r\n"]]
        {
            let mut rope = rope(pieces);
            assert!(rope.strip_end(b"END\r\n"));
            assert_eq!(rope.to_vec(), b"x");
        }
        let mut short = rope(&[b"D\r", b"\n"]);
        assert!(!short.strip_end(b"END\r\n") && short.len() == 3);
    }
}
