package main

import (
	"net"
	"os"
	"strings"
)

// notifySystem reports the state of the service to systemd if NOTIFY_SOCKET is
// set, see sd_notify(3). It ignores errors.
func notifySystem(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if strings.HasPrefix(name, "@") {
		name = "\x00" + name[1:] // an abstract socket
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}
