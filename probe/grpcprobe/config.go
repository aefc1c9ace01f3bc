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

// Config says whom to ask, and how.
type Config struct {
	Host    string // an IP address or a name; the pod's IP for a probe of the API
	Port    int    // 1 to 65535
	Service string // which service of the server; empty is the server as a whole

	// TLS talks TLS to the server and takes any certificate, as the API's mode TLS has it.
	TLS bool
	// FreshConnections opens a connection for each probe, as the kubelet does.
	FreshConnections bool
}

// validate names the field that no server could be asked with.
func (c *Config) validateFields() error {
	if err := probeconn.CheckAddress(c.Host, c.Port); err != nil {
		return err
	}
	if !utf8.ValidString(c.Service) {
		return fmt.Errorf("field Service: %q is not UTF-8", c.Service)
	}
	return nil
}

// address returns host:port, with brackets around an IPv6 address.
func (c *Config) hostPort() string { return net.JoinHostPort(c.Host, strconv.Itoa(c.Port)) }
