//go:build linux

package abuse

import (
	"bytes"
	"encoding/binary"
	"strings"
)

// Types and flags of HTTP/2 frames.
const (
	frameData         = 0
	frameHeaders      = 1
	frameReset        = 3
	frameSettings     = 4
	framePing         = 6
	frameContinuation = 9

	endStream  = 1
	endHeaders = 4
)

const preface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

// frame returns an HTTP/2 frame.
func frame(kind, flags byte, stream uint32, payload []byte) []byte {
	head := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags, 0, 0, 0, 0}
	binary.BigEndian.PutUint32(head[5:], stream)
	return append(head, payload...)
}

// number appends an HPACK integer with a prefix of some bits.
func number(b []byte, first byte, bits, n int) []byte {
	most := 1<<bits - 1
	if n < most {
		return append(b, first|byte(n))
	}
	b = append(b, first|byte(most))
	for n -= most; n >= 128; n >>= 7 {
		b = append(b, byte(n)|128)
	}
	return append(b, byte(n))
}

// field appends an HPACK header field. An indexed one enters the table, so that
// later fields can refer to it with one byte.
func field(b []byte, name, value string, indexed bool) []byte {
	first := byte(0)
	if indexed {
		first = 0x40
	}
	b = append(b, first)
	b = append(number(b, 0, 7, len(name)), name...)
	return append(number(b, 0, 7, len(value)), value...)
}

// callHeaders returns the HPACK header fields of a gRPC call.
func callHeaders(path string) []byte {
	var b []byte
	for _, f := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "leased"},
		{"content-type", "application/grpc"}, {"te", "trailers"}} {
		b = field(b, f[0], f[1], false)
	}
	return b
}

// grpcCall returns the frames of a call on stream 1 with this body.
func grpcCall(path string, body []byte) []byte {
	return bytes.Join([][]byte{[]byte(preface), frame(frameSettings, 0, 0, nil), frame(frameHeaders, endHeaders, 1,
		callHeaders(path)),
		frame(frameData, endStream, 1, body)}, nil)
}

// grpcMessage returns the framing of a gRPC message whose header claims a length.
func grpcMessage(compressed byte, claims uint32, message []byte) []byte {
	head := append([]byte{compressed}, 0, 0, 0, 0)
	binary.BigEndian.PutUint32(head[1:], claims)
	return append(head, message...)
}

// hpackBomb returns a call with a header of 4,000 bytes that is repeated with one
// byte each.
func hpackBomb(times int) []byte {
	block := field(callHeaders("/leased.v1.LeaseService/Acquire"), "x", strings.Repeat("x", 4000), true)
	out := []byte(preface)
	out = append(out, frame(frameSettings, 0, 0, nil)...)
	out = append(out, frame(frameHeaders, 0, 1, block)...)
	for range times / 16_000 {
		out = append(out, frame(frameContinuation, 0, 1, bytes.Repeat([]byte{0x80 | 62}, 16_000))...)
	}
	return append(out, frame(frameContinuation, endHeaders, 1, nil)...)
}

// flood returns the same frame many times, on new streams if step is not 0.
func flood(times int, step uint32, build func(stream uint32) []byte) []byte {
	out := append([]byte(preface), frame(frameSettings, 0, 0, nil)...)
	for i := range times {
		out = append(out, build(1+step*uint32(i))...)
	}
	return out
}
