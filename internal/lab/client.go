// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package lab

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
)

// maxReply is the maximum size of a response of the runtime in bytes.
const maxReply = 16 << 20

// runtimeClient makes the few CRI calls that a lab needs to start and to be checked. It frames gRPC by hand over net/http, so
// that this package needs no gRPC library and leaks are not detected by the tested client.
type runtimeClient struct{ http *http.Client }

func (l *Lab) newRuntimeClient() *runtimeClient {
	socket := l.socketPath()
	var protocols http.Protocols
	protocols.SetUnencryptedHTTP2(true)
	return &runtimeClient{&http.Client{Transport: &http.Transport{
		Protocols: &protocols,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", socket)
		},
	}}}
}

func (c *runtimeClient) closeConns() { c.http.CloseIdleConnections() }

// invoke calls a unary method of the CRI runtime service with an empty request, and returns the encoded response.
func (c *runtimeClient) invoke(ctx context.Context, method string) ([]byte, error) {
	frame := make([]byte, 5) // uncompressed, of length 0
	url := "http://cri/runtime.v1.RuntimeService/" + method
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(frame))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/grpc")
	req.Header.Set("TE", "trailers")
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", method, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", method, err)
	}
	status, message := resp.Trailer.Get("Grpc-Status"), resp.Trailer.Get("Grpc-Message")
	if status == "" { // a response without a body has its trailers in the header
		status, message = resp.Header.Get("Grpc-Status"), resp.Header.Get("Grpc-Message")
	}
	if status != "0" {
		return nil, fmt.Errorf("call %s: gRPC status %q: %s", method, status, message)
	}
	if len(body) < len(frame) {
		return nil, fmt.Errorf("call %s: answer of %d bytes has no frame", method, len(body))
	}
	return body[len(frame):], nil
}

// listIDs calls ListPodSandbox or ListContainers, and returns the IDs of all objects in the response.
func (c *runtimeClient) listIDs(ctx context.Context, method string) ([]string, error) {
	reply, err := c.invoke(ctx, method)
	if err != nil {
		return nil, err
	}
	// In both responses, field 1 is the repeated object, and field 1 of an object is its ID.
	items, err := firstField(reply)
	if err != nil {
		return nil, fmt.Errorf("call %s: parse answer: %w", method, err)
	}
	ids := make([]string, 0, len(items))
	for _, item := range items {
		id, err := firstField(item)
		if err != nil || len(id) != 1 {
			return nil, fmt.Errorf("call %s: parse answer: %d ids in one item: %w", method, len(id), err)
		}
		ids = append(ids, string(id[0]))
	}
	return ids, nil
}

// Wire types of protobuf: https://protobuf.dev/programming-guides/encoding/#structure
const (
	wireVarint = 0
	wireFixed8 = 1
	wireBytes  = 2
	wireFixed4 = 5
)

// firstField returns all values of field 1 in the encoded protobuf message msg, in order. The values must be strings, bytes
// or messages.
func firstField(msg []byte) ([][]byte, error) {
	var values [][]byte
	for len(msg) > 0 {
		tag, n := binary.Uvarint(msg)
		if n <= 0 {
			return nil, errors.New("bad field tag")
		}
		msg = msg[n:]
		var size uint64
		switch tag & 7 {
		case wireVarint:
			_, n := binary.Uvarint(msg)
			if n <= 0 {
				return nil, errors.New("bad varint")
			}
			size = uint64(n)
		case wireFixed8:
			size = 8
		case wireFixed4:
			size = 4
		case wireBytes:
			length, n := binary.Uvarint(msg)
			if n <= 0 {
				return nil, errors.New("bad length")
			}
			msg, size = msg[n:], length
		default:
			return nil, fmt.Errorf("unknown wire type %d", tag&7)
		}
		if size > uint64(len(msg)) {
			return nil, fmt.Errorf("field of %d bytes in %d left", size, len(msg))
		}
		if tag == 1<<3|wireBytes {
			values = append(values, msg[:size])
		}
		msg = msg[size:]
	}
	return values, nil
}
