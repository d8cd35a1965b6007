// Package filegate is a gate for replacing files.
//
// Limits: it needs a local file system with atomic rename and with flock between
// processes; network file systems often lack one of them. It guards only
// replacements that go through it: any program can still write to the files.
// Removing files in the folder .leased removes the protection: a gate detects a
// removed lock before it changes anything, but not a removed mark. Mark and data
// are two files, so a crash between them can leave the mark raised and the data
// unchanged. That refuses older holders early and is safe: at no step of a write
// can the data be newer than its mark. A process that is stopped in the middle of a
// write blocks the resource until it resumes or exits, so pass Do a context with a
// deadline.
//
// A folder contains one plain file for each resource, which any program can
// read unless the gate is from [NewPrivate], and the folder .leased with marks and locks. A write locks its resource
// and does these steps:
//
//  1. write the new content to a temporary file, and fsync it;
//  2. if the mark rises, write the mark to a temporary file, fsync it, rename it
//     and fsync the folder, so that no later step reaches the disk before it;
//  3. rename the new content over the old, and fsync the folder.
//
// Types, in reading order: [Gate]; [File], the replacement that a write prepares.
package filegate
