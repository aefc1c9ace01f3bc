// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package grpcprobe

import (
	"fmt"
	"net"
	"strconv"
	"unicode/utf8"

	"github.com/seed81659283/nodeagent/internal/probeconn"
)

// Config is the server and the service that a [Prober] checks.
type Config struct {
	Host    string // IP address or name; the pod IP for a probe in a pod spec
	Port    int    // 1 to 65535
	Service string // name of the service; empty checks the whole server

	// TLS connects with TLS and accepts any certificate, like mode TLS of the API.
	TLS bool
	// FreshConnections opens a connection for each probe, as the kubelet does.
	FreshConnections bool
}

// validateFields returns an error that names the first invalid field, or nil if all are valid.
func (c *Config) validateFields() error {
	if err := probeconn.CheckAddress(c.Host, c.Port); err != nil {
		return err
	}
	if !utf8.ValidString(c.Service) {
		return fmt.Errorf("field Service: %q is not UTF-8", c.Service)
	}
	return nil
}

// hostPort returns the host and the port as one string. It puts an IPv6 address in brackets.
func (c *Config) hostPort() string { return net.JoinHostPort(c.Host, strconv.Itoa(c.Port)) }
