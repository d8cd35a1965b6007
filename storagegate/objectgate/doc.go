// Package objectgate refuses stale writes to objects in S3 and in stores that
// speak its protocol, by conditional writes.
//
// What it does not give:
//
//   - The store must enforce If-Match and If-None-Match on PutObject, must do
//     so atomically, and must show a completed write to every later read. S3
//     does; of other stores ask the maker, and run gatetest against them.
//     [Gate.Verify] asks the store itself whether it honours the conditions.
//   - An object that somebody deletes, or overwrites without the gate, has lost
//     its mark. Deny both to everyone but the gate's users, who need no right to
//     delete.
//   - A lost answer is resolved by reading again, but not always: if the store
//     cannot be reached, or many others have written meanwhile, the outcome is
//     storagegate.ErrUncertain.
//   - A write keeps what HEAD and GetObjectTagging tell of the object (see
//     [Attributes]; also tags and encryption). It does not keep what they do not
//     tell: access control lists (the object gets the bucket's default, unless
//     lists are switched off), the retention and legal hold of the version
//     before, checksums of a kind of their own, and metadata that is no valid
//     header. Objects under a customer's key (SSE-C) cannot be gated. Tags
//     and attributes that somebody changes past the gate at the same moment may
//     be put back as they were: change them through the gate.
//   - The line in front of the data (below) is part of the content, also of
//     compressed content: a browser cannot decode a gated object that has a
//     Content-Encoding. What takes the line off first can.
//   - To enter rewrites the whole object. Keep gated objects small: write large
//     data to keys that are never used twice, and gate the small object that
//     names them.
//
// Data and mark are one object, so that check and write are one compare-and-swap
// on its ETag: read ETag and mark, ask the rule, write on condition that the ETag
// is still the same, else begin again. An ETag alone cannot carry this, though:
// it is a digest of the content, so an object whose metadata alone changed keeps
// it, and a stale writer would pass after a newer holder had entered. Therefore
// the content of a gated object begins with a line that is never the same twice:
//
//	leased:1 Jx0J3kq8bBvH1sQv0o6GWA
//
// What follows it is the data. [Gate.Read] and [Tx.Read] take the line off, and
// so does "tail -n +2". The mark and the names of the last writes are in the
// object's metadata, which is written together with the content.
//
// The nouns, in reading order: [Client], what the gate needs of an S3 client;
// [Gate]; [Tx], one write; [Attributes], what an
// object carries beside its data; [Key], where a resource lives.
package objectgate
