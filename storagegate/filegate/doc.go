// Package filegate gates the replacement of files.
//
// What it does not give: it needs a local file system where rename is atomic
// and flock works between processes; network file systems often lack one of
// them. Removing files in the folder .leased takes the protection away: a lock
// that was removed is noticed before the first change, a mark is not. It guards only replacements made through it: any program can still
// write to the file. And mark and data are two files, so a failure or a crash
// between them can leave the mark raised and the data as it was. That refuses
// older holders early, and is never unsafe: data newer than its mark cannot
// exist, whatever step the writer dies at.
//
// A folder holds one plain file for each resource, which any program can read,
// and a folder .leased beside them with the marks and the locks. A write holds
// the lock of its resource and goes through these steps:
//
//  1. the new content to a temporary file, and fsync;
//  2. if the mark rises: the mark to a temporary file, fsync, rename, fsync of
//     the folder, so that no later step can reach the disk before the mark;
//  3. rename of the new content over the old, and fsync of the folder.
//
// The nouns, in reading order: [Gate]; [File], what a write works with.
package filegate
