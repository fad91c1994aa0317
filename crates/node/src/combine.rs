//! Waiting for several things, in one task.

use crate::cx::Cx;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

/// The outputs of all `futures`, in their order, which run side by side.
pub async fn all<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut waiting: Vec<Pin<Box<F>>> = futures.into_iter().map(Box::pin).collect();
    let mut outputs: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    poll_fn(|cx| poll_each(cx, waiting.iter_mut().map(|f| f.as_mut()), &mut outputs)).await;
    outputs.into_iter().map(|output| output.expect("all are ready")).collect()
}

/// As [`all`], for a fixed number and without allocation.
pub async fn all_of<F: Future + Unpin, const N: usize>(mut futures: [F; N]) -> [F::Output; N] {
    let mut outputs: [Option<F::Output>; N] = std::array::from_fn(|_| None);
    poll_fn(|cx| poll_each(cx, futures.iter_mut().map(Pin::new), &mut outputs)).await;
    outputs.map(|output| output.expect("all are ready"))
}

/// The outputs of both, which run side by side; whenever they are looked at, the left one is first.
pub async fn both<A: Future, B: Future>(a: A, b: B) -> (A::Output, B::Output) {
    let (mut a, mut b) = (pin!(a), pin!(b));
    let (mut left, mut right) = (None, None);
    poll_fn(|cx| {
        if left.is_none()
            && let Poll::Ready(value) = a.as_mut().poll(cx)
        {
            left = Some(value);
        }
        if right.is_none()
            && let Poll::Ready(value) = b.as_mut().poll(cx)
        {
            right = Some(value);
        }
        if left.is_some() && right.is_some() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (left.expect("both are ready"), right.expect("both are ready"))
}

fn poll_each<'a, F: Future + 'a>(
    cx: &mut Context<'_>,
    futures: impl Iterator<Item = Pin<&'a mut F>>,
    outputs: &mut [Option<F::Output>],
) -> Poll<()> {
    let mut missing = false;
    for (future, output) in futures.zip(outputs) {
        if output.is_none() {
            match future.poll(cx) {
                Poll::Ready(value) => *output = Some(value),
                Poll::Pending => missing = true,
            }
        }
    }
    if missing { Poll::Pending } else { Poll::Ready(()) }
}

/// The first of two to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Either<A, B> {
    /// The first of the two arguments.
    Left(A),
    /// The second.
    Right(B),
}

/// The first of the two that is ready; the other is dropped. When both are, the left one.
pub async fn race<A: Future, B: Future>(a: A, b: B) -> Either<A::Output, B::Output> {
    let (mut a, mut b) = (pin!(a), pin!(b));
    poll_fn(|cx| {
        if let Poll::Ready(value) = a.as_mut().poll(cx) {
            return Poll::Ready(Either::Left(value));
        }
        b.as_mut().poll(cx).map(Either::Right)
    })
    .await
}

/// The time was up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late;

impl Cx {
    /// The future's output, or [`Late`] when it took longer than `span`; it is dropped then.
    pub async fn with_deadline<F: Future>(&self, span: Duration, f: F) -> Result<F::Output, Late> {
        match race(f, self.sleep(span)).await {
            Either::Left(value) => Ok(value),
            Either::Right(()) => Err(Late),
        }
    }
}
