// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package websocket_test

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/streaming/websocket"
)

func TestAcceptKey(t *testing.T) {
	assert.Equal(t, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", websocket.AcceptKey("dGhlIHNhbXBsZSBub25jZQ=="), "example of RFC 6455")
}

// readAll reads all messages, at most size bytes at a time, and returns them with the final error.
func readAll(c *websocket.Conn, size int) (messages []string, err error) {
	b := make([]byte, size)
	for {
		if err := c.NextMessage(); err != nil {
			return messages, err
		}
		var message strings.Builder
		for {
			n, err := c.Read(b)
			message.Write(b[:n])
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return messages, err
			}
		}
		messages = append(messages, message.String())
	}
}

// One side writes messages, and the other side reads them with reads of any size.
func TestRoundTrip(t *testing.T) {
	for _, client := range []bool{true, false} {
		for _, size := range []int{1, 2, 3, 5, 7, 8, 9, 4096} {
			var wire bytes.Buffer
			w := websocket.New(nil, &wire, client)
			long := strings.Repeat("0123456789", 10000)
			for _, s := range []string{"", "a", "some bytes more", long[:125], long[:126], long[:65535], long} {
				_, err := w.WriteBinary([]byte{7}, []byte(s))
				require.NoError(t, err)
			}
			require.NoError(t, w.WriteClose(websocket.GoingAway, "over"))
			_, err := w.WriteBinary(nil, []byte("late"))
			require.ErrorIs(t, err, io.ErrClosedPipe)

			var answer bytes.Buffer
			got, err := readAll(websocket.New(bufio.NewReader(&wire), &answer, !client), size)
			var closed *websocket.CloseError
			require.ErrorAs(t, err, &closed)
			assert.Equal(t, websocket.CloseError{Code: websocket.GoingAway, Reason: "over"}, *closed)
			assert.Equal(t, []string{"\x07", "\x07a", "\x07some bytes more", "\x07" + long[:125], "\x07" + long[:126]}, got[:5])
			assert.Equal(t, 65535+len(long), len(strings.Join(got[5:], ""))-len(got[5:]))
			assert.NotZero(t, answer.Len(), "a close frame gets a reply")
		}
	}
}

// Frames that violate RFC 6455 close the connection with code 1002, and pings get a reply.
func TestInvalidFramesAndPings(t *testing.T) {
	const mask = "\x00\x00\x00\x00"
	tests := map[string]struct {
		wire     string
		messages []string
		err      string
		answer   string
	}{
		"pieces":                     {"\x02\x82" + mask + "ab" + "\x89\x81" + mask + "p" + "\x80\x81" + mask + "c", []string{"abc"}, "EOF", "\x8a\x01p"},
		"empty piece":                {"\x02\x80" + mask + "\x80\x81" + mask + "c", []string{"c"}, "EOF", ""},
		"not masked":                 {"\x82\x01a", nil, "a client masks its frames, a server does not", ""},
		"reserved bit":               {"\xc2\x80" + mask, nil, "a reserved bit is set", ""},
		"reserved opcode":            {"\x83\x80" + mask, nil, "opcode 0x3 is not known", ""},
		"long control":               {"\x89\xfe\x00\x7e" + mask, nil, "a control frame is in pieces or too long", ""},
		"fragmented control":         {"\x09\x80" + mask, nil, "a control frame is in pieces or too long", ""},
		"continuation without start": {"\x80\x80" + mask, nil, "a message begins within another, or continues none", ""},
		"start within a message":     {"\x02\x80" + mask + "\x82\x80" + mask, nil, "a message begins within another, or continues none", ""},
		"64 bits":                    {"\x82\xff\xff\xff\xff\xff\xff\xff\xff\xff" + mask, nil, "its length has more than 63 bits", ""},
		"close code of one byte":     {"\x88\x81" + mask + "a", nil, "a close frame has half a code", ""},
		"close reason not UTF-8":     {"\x88\x83" + mask + "\x03\xe8\xff", nil, "a close frame has half a code", ""},
		"ends in a header":           {"\x82", nil, "unexpected EOF", ""},
		"ends in a frame":            {"\x82\x82" + mask + "a", nil, "unexpected EOF", ""},
		"pong":                       {"\x8a\x80" + mask, nil, "EOF", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var answer bytes.Buffer
			got, err := readAll(websocket.New(bufio.NewReader(strings.NewReader(test.wire)), &answer, false), 1)
			require.ErrorContains(t, err, test.err)
			assert.Equal(t, test.messages, got)
			if _, invalid := errors.AsType[*websocket.FrameError](err); invalid {
				assert.True(t, strings.HasPrefix(answer.String()[2:], "\x03\xea"), "%q", answer.String())
			} else {
				assert.Equal(t, test.answer, answer.String())
			}
		})
	}
}

// Reading returns for any input, and allocates no more memory than the input has bytes.
func FuzzRead(f *testing.F) {
	f.Add([]byte("\x82\x82\x00\x00\x00\x00ab\x88\x80\x00\x00\x00\x00"), false, 3)
	f.Add([]byte("\x02\x01a\x80\x01b\x89\x00"), true, 1)
	f.Fuzz(func(t *testing.T, wire []byte, client bool, size int) {
		c := websocket.New(bufio.NewReader(bytes.NewReader(wire)), io.Discard, client)
		messages, err := readAll(c, 1+(size&0xff))
		require.Error(t, err)
		assert.LessOrEqual(t, len(strings.Join(messages, ""))+2*len(messages), len(wire))
	})
}

// Written data is read back, masked or not, with reads of any size.
func FuzzRoundTrip(f *testing.F) {
	f.Add([]byte("payload"), true, 3)
	f.Fuzz(func(t *testing.T, payload []byte, client bool, size int) {
		var wire bytes.Buffer
		w := websocket.New(nil, &wire, client)
		_, err := w.WriteBinary(nil, payload)
		require.NoError(t, err)
		got, err := readAll(websocket.New(bufio.NewReaderSize(&wire, 16), io.Discard, !client), 1+(size&0xff))
		require.ErrorIs(t, err, io.EOF)
		assert.Equal(t, string(payload), strings.Join(got, ""))
	})
}
