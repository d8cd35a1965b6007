// Package objectgate is a gate for objects in S3 and compatible stores. It uses
// conditional writes.
//
// Limits:
//
//   - The store must enforce If-Match and If-None-Match on PutObject atomically,
//     and must show a completed write to every later read. S3 does; for another
//     store, ask its vendor and run gatetest against it. [Gate.Verify] checks
//     whether the store enforces the conditions.
//   - An object that is deleted, or overwritten without the gate, loses its mark.
//     Deny both to everyone except the users of the gate, who do not need the
//     right to delete.
//   - The gate resolves a lost response by reading the object again. If the store
//     cannot be reached, or many others have written meanwhile, the outcome is
//     storagegate.ErrUncertain.
//   - A write keeps the attributes that HEAD and GetObjectTagging return (see
//     [Attributes]; also tags and encryption). It does not keep access control
//     lists (the object gets the bucket's default), the retention and legal hold
//     of the previous version, custom checksums, and metadata that is not a valid
//     header. Objects with a customer-provided key (SSE-C) cannot be gated. Tags
//     and attributes that are changed without the gate during a write may be
//     reset: change them through the gate.
//   - The first line of the content (see below) belongs to the gate, also in
//     compressed content: a browser cannot decode a gated object that has a
//     Content-Encoding unless something removes the line first.
//   - Enter rewrites the whole object. Keep gated objects small: write large data
//     under keys that are never used again, and gate the small object that refers
//     to them.
//
// Data and mark are one object, so check and write are one compare-and-swap on
// its ETag: read ETag and mark, apply the rule, write on condition that the ETag
// is unchanged, and otherwise start again. The ETag alone is not sufficient. It is
// a digest of the content, so a change of the metadata does not change it, and a
// stale writer could write after a newer holder has entered. Therefore the
// content of a gated object starts with a line that is unique for each write:
//
//	leased:1 Jx0J3kq8bBvH1sQv0o6GWA
//
// The data follows the line. [Gate.Read] and [Tx.Read] remove the line; so does
// "tail -n +2". The mark and the nonces of the last writes are in the object's
// metadata, which is written together with the content.
//
// Types, in reading order: [Client], the methods of the S3 client that the gate
// uses; [Gate]; [Tx], one write; [Attributes], the attributes of an object; [Key],
// the key of a resource.
package objectgate
