package main

import (
	"net"
	"os"
	"strings"
)

// notifySystem tells systemd how the service is doing, if it wants to know. See
// sd_notify(3). That it cannot be told is no reason to stop.
func notifySystem(state string) {
	name := os.Getenv("NOTIFY_SOCKET")
	if name == "" {
		return
	}
	if strings.HasPrefix(name, "@") {
		name = "\x00" + name[1:] // a socket without a file
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return
	}
	defer conn.Close()
	_, _ = conn.Write([]byte(state))
}
