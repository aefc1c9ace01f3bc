// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package streaming

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/internal/streaming/upgrade"
)

// ParseStreams returns the streams in the query of an exec or attach request: input, output, error and tty. With a TTY,
// Stderr is false. The error is the kubelet's message for HTTP status 400.
func ParseStreams(query url.Values) (cri.StreamOptions, error) {
	o := cri.StreamOptions{
		Stdin: query.Get("input") == "1", Stdout: query.Get("output") == "1", Stderr: query.Get("error") == "1", TTY: query.Get("tty") == "1",
	}
	o.Stderr = o.Stderr && !o.TTY
	if !o.Stdin && !o.Stdout && !o.Stderr {
		return o, errors.New("you must specify at least 1 of stdin, stdout, stderr")
	}
	return o, nil
}

// ParsePorts returns the ports in the query of a port-forward request. It returns nil for SPDY, also inside a WebSocket:
// such a client sends the port with each stream. The errors are the kubelet's messages for HTTP status 400.
func ParsePorts(r *http.Request) ([]int32, error) {
	if !upgrade.IsWebSocket(r) || upgrade.IsTunnel(r) {
		return nil, nil
	}
	values := r.URL.Query()["port"]
	if len(values) == 0 {
		return nil, errors.New(`query parameter "port" is required`)
	}
	var ports []int32
	for _, value := range values {
		if value == "" {
			return nil, errors.New(`query parameter "port" cannot be empty`)
		}
		for one := range strings.SplitSeq(value, ",") {
			port, err := parsePort(one, value)
			if err != nil {
				return nil, err
			}
			if ports = append(ports, port); len(ports) > maxChannels/2 {
				return nil, fmt.Errorf(`query parameter "port" names more than %d ports`, maxChannels/2)
			}
		}
	}
	return ports, nil
}

// maxChannels is the largest number of channels of a WebSocket. Channel numbers are bytes, and 255 is reserved.
const maxChannels = 254

func parsePort(s, value string) (int32, error) {
	port, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, fmt.Errorf("unable to parse %q as a port: %w", value, err)
	}
	if port < 1 {
		return 0, fmt.Errorf("port %q must be > 0", value)
	}
	return int32(port), nil
}
