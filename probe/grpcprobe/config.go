// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package grpcprobe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Config says whom to ask, and how.
type Config struct {
	Host    string // an IP address or a name; the pod's IP for a probe of the API
	Port    int    // 1 to 65535
	Service string // which service of the server; empty is the server as a whole

	// TLS talks TLS to the server and takes any certificate, as the API's mode TLS has it.
	TLS bool
	// NewConnection makes a connection for each probe, and so asks the server to accept one every time.
	NewConnection bool
	// WaitForReady tries to connect until the timeout is over, for a server that listens late.
	WaitForReady bool
}

// validate names the field that no server could be asked with.
func (c *Config) validate() error {
	if c.Host == "" {
		return errors.New("field Host: is empty")
	}
	if _, err := netip.ParseAddr(c.Host); err != nil && strings.ContainsFunc(c.Host, notInName) {
		return fmt.Errorf("field Host: %q is neither a name nor an IP address", c.Host)
	}
	if c.Port < 1 || c.Port > 65535 {
		return fmt.Errorf("field Port: %d is not from 1 to 65535", c.Port)
	}
	if !utf8.ValidString(c.Service) {
		return fmt.Errorf("field Service: %q is not UTF-8", c.Service)
	}
	return nil
}

// notInName reports whether a character ends the host in an address, or is none that can be seen.
func notInName(r rune) bool {
	return r == utf8.RuneError || unicode.IsSpace(r) || !unicode.IsGraphic(r) || strings.ContainsRune("/?#[]@:%", r)
}

// address returns host:port, with brackets around an IPv6 address.
func (c *Config) address() string { return net.JoinHostPort(c.Host, strconv.Itoa(c.Port)) }
