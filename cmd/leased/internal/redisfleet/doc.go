// Package redisfleet starts redis-server processes so that `leased dev` can offer
// efficiency mode on one machine.
//
// The nodes are not independent: they share one machine, and production needs
// servers that fail one by one. They keep no data when they end: the service
// treats a restart of Redis as data loss and gives new nodes larger tokens.
//
// The nouns, in reading order: [Fleet]; process, one redis-server process.
package redisfleet
