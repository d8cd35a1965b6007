// Package redisfleet starts Redis masters for trying leased out: real
// redis-server processes where that program is installed, else embedded ones.
//
// What it does not give: independence. All of them run on one machine, and the
// embedded ones in one process. Production needs servers that fail one by one.
// None of them keeps anything when it ends: a restart of Redis is a loss anyway,
// and the service gives new nodes larger tokens.
//
// The nouns, in reading order: [Fleet]; process, a redis-server process;
// embedded, an imitation in this process.
package redisfleet
