//! Calls of the members' service.

use crate::limits::{CALL_DEADLINE, PAGE_BYTES};
use crate::protocol::is_pure;
use endpoint::{Frame, FrameMut};
use node::{Call, Cx, Pieces, Reply};
use wire::{Channel, Errno, NodeId};

/// The answer, whatever its status; an error where there is none.
pub(crate) async fn call(
    cx: &Cx,
    manager: NodeId,
    op: u16,
    body: &[u8],
    data: Pieces<Frame>,
    into: Pieces<FrameMut>,
) -> Result<Reply, Errno> {
    let once = !is_pure(op);
    let deadline = Some(CALL_DEADLINE);
    let call = Call {
        to: manager,
        channel: Channel::MEMBERS,
        op,
        once,
        deadline,
        body,
        data,
        trailer: &[],
        into,
    };
    cx.call(call).await.map_err(Errno::from)
}

/// As [`call`]; a status is an error, too.
pub(crate) async fn ask(
    cx: &Cx,
    manager: NodeId,
    op: u16,
    body: &[u8],
    data: Pieces<Frame>,
    into: Pieces<FrameMut>,
) -> Result<Reply, Errno> {
    call(cx, manager, op, body, data, into).await?.ok()
}

/// Without data, and with room for a page of the answer's; the answer, whatever its status, and its data.
pub(crate) async fn call_for_page(
    cx: &Cx,
    manager: NodeId,
    op: u16,
    body: &[u8],
) -> Result<(Reply, Vec<u8>), Errno> {
    let frame = cx.frames().alloc(PAGE_BYTES).ok_or(Errno::ENOMEM)?;
    let reply = call(cx, manager, op, body, cx.pieces(), cx.piece(frame)).await?;
    let data = reply.data.first().map_or(&[][..], |frame| &frame[..reply.bytes]).to_vec();
    Ok((reply, data))
}
