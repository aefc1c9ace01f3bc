// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package grpcprobe_test

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/costtest"
	"github.com/seed81659283/nodeagent/probe"
)

// Types and flags of HTTP/2 frames, RFC 9113 section 6.
const (
	frameData, frameHeaders, frameSettings, frameContinuation = 0, 1, 4, 9
	flagEndStream, flagEndHeaders                             = 1, 4
	maxFrame                                                  = 16 << 10
)

// newFrame returns an HTTP/2 frame.
func newFrame(kind, flags byte, stream uint32, payload []byte) []byte {
	f := []byte{byte(len(payload) >> 16), byte(len(payload) >> 8), byte(len(payload)), kind, flags}
	return append(binary.BigEndian.AppendUint32(f, stream), payload...)
}

// newHeaders returns the frames of a header block, which may need several.
func newHeaders(flags byte, block []byte) []byte {
	var out []byte
	for kind := byte(frameHeaders); ; kind, flags = frameContinuation, 0 {
		n := min(len(block), maxFrame)
		part := block[:n]
		block = block[n:]
		if len(block) == 0 {
			return append(out, newFrame(kind, flags|flagEndHeaders, 1, part)...)
		}
		out = append(out, newFrame(kind, flags, 1, part)...)
	}
}

// hpackLength encodes a length with a prefix of n bits (RFC 7541, section 5.1).
func hpackLength(first byte, n, length int) []byte {
	most := 1<<n - 1
	if length < most {
		return []byte{first | byte(length)}
	}
	out := []byte{first | byte(most)}
	for length -= most; length >= 128; length >>= 7 {
		out = append(out, byte(length)|128)
	}
	return append(out, byte(length))
}

// encodeHeader encodes a header; an indexed one enters the dynamic table.
func encodeHeader(indexed bool, name, value string) []byte {
	out := []byte{0}
	if indexed {
		out[0] = 0x40
	}
	out = append(append(out, hpackLength(0, 7, len(name))...), name...)
	return append(append(out, hpackLength(0, 7, len(value))...), value...)
}

// responseStart returns the first headers of a gRPC response.
func responseStart() []byte {
	return append([]byte{0x88}, encodeHeader(false, "content-type", "application/grpc")...)
}

// failureTrailers returns the headers of a failed gRPC response without a body.
func failureTrailers(message string) []byte {
	return append(append(responseStart(), encodeHeader(false, "grpc-status", "2")...), encodeHeader(false, "grpc-message", message)...)
}

// serveResponse runs a server that sends the given bytes after a call, ignoring the limits of its client.
func serveResponse(t *testing.T, answer []byte) *listener {
	t.Helper()
	l := listen(t, "127.0.0.1:0")
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() { answerCall(conn, answer) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		for _, c := range l.connections() {
			_ = c.Close()
		}
		served.Wait()
	})
	return l
}

func answerCall(conn net.Conn, answer []byte) {
	defer conn.Close()
	_, _ = conn.Write(newFrame(frameSettings, 0, 0, nil))
	var head [9]byte
	if _, err := io.CopyN(io.Discard, conn, int64(len("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"))); err != nil {
		return
	}
	for {
		if _, err := io.ReadFull(conn, head[:]); err != nil {
			return
		}
		length := int64(head[0])<<16 | int64(head[1])<<8 | int64(head[2])
		if _, err := io.CopyN(io.Discard, conn, length); err != nil {
			return
		}
		if head[3] == frameHeaders {
			go func() { _, _ = conn.Write(answer) }()
		}
	}
}

// hostileAnswers returns responses of the largest sizes that HTTP/2 permits, each in another field.
func hostileAnswers() map[string][]byte {
	const size = 15 << 20
	big := strings.Repeat("x", 4000)
	indexed := append(responseStart(), encodeHeader(true, "a", big)...)
	indexed = append(indexed, bytes.Repeat([]byte{0x80 | 62}, size/4000)...)
	small := responseStart()
	for len(small) < size {
		small = append(small, encodeHeader(false, "a", "")...)
	}
	message := append([]byte{0, 0, 0x3f, 0xff, 0xff}, make([]byte, 0x3fffff)...)
	data := newHeaders(0, responseStart())
	for len(message) > 0 {
		n := min(len(message), maxFrame)
		data = append(data, newFrame(frameData, 0, 1, message[:n])...)
		message = message[n:]
	}
	return map[string][]byte{
		"message":                  newHeaders(flagEndStream, failureTrailers(strings.Repeat("m", size))),
		"message of escapes":       newHeaders(flagEndStream, failureTrailers(strings.Repeat("%41", size/3))),
		"message within a frame":   newHeaders(flagEndStream, failureTrailers(strings.Repeat("m", 15<<10))),
		"metadata":                 newHeaders(flagEndStream, append(failureTrailers("no"), encodeHeader(false, "a", strings.Repeat("v", size))...)),
		"metadata without trailer": newHeaders(0, append(responseStart(), encodeHeader(false, "a", strings.Repeat("v", size))...)),
		"indexed metadata":         newHeaders(flagEndStream, append(indexed, encodeHeader(false, "grpc-status", "2")...)),
		"many headers":             newHeaders(flagEndStream, append(small, encodeHeader(false, "grpc-status", "2")...)),
		"response":                 data,
		"no gRPC":                  append(newHeaders(0, []byte{0x88}), bytes.Repeat(newFrame(frameData, 0, 1, make([]byte, 1<<10)), 15<<10)...),
	}
}

// A probe and its result need bounded memory for any response.
func TestMemoryIsBoundedForAnyResponse(t *testing.T) {
	for name, answer := range hostileAnswers() {
		t.Run(name, func(t *testing.T) {
			p := newProber(t, serveResponse(t, answer).config())
			costtest.Check(t, costtest.Limit{Bytes: 3 << 20, Time: time.Minute}, func() {
				result := probeOnce(t, p, time.Second)
				assert.Equal(t, probe.Failure, result.Outcome)
				assert.LessOrEqual(t, len(result.Output), probe.MaxOutput)
				require.NotEmpty(t, result.Output)
			})
		})
	}
}
