// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package probeconn

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"unicode"
)

// CheckAddress returns an error that names the field, Host or Port, that nobody can connect to. Whether a name exists is
// for the resolver to say, so a host is refused only for what no name has in it.
func CheckAddress(host string, port int) error {
	if port < 1 || port > 65535 {
		return fmt.Errorf("field Port: %d is not from 1 to 65535", port)
	}
	if host == "" {
		return errors.New("field Host: is empty")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		return nil
	}
	if strings.ContainsFunc(host, isInvalidInHost) {
		return fmt.Errorf("field Host: %q is neither a name nor an IP address", host)
	}
	return nil
}

// notInName reports whether a character ends the host in a URL, or can be in no text of one line. Names beyond ASCII are
// the resolver's business.
func isInvalidInHost(r rune) bool {
	return r == unicode.ReplacementChar || !unicode.IsGraphic(r) || unicode.IsSpace(r) || strings.ContainsRune("/?#@[]:%\\<>\"^`{|}", r)
}
