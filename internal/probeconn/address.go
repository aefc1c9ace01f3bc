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

// CheckAddress returns an error, with the field name Host or Port, if host or port is invalid. It does not resolve the host,
// which must be an IP address or have only characters of host names.
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

// isInvalidInHost reports whether char cannot occur in the host name of a URL. It permits letters beyond ASCII, which the
// resolver interprets.
func isInvalidInHost(char rune) bool {
	return char == unicode.ReplacementChar || !unicode.IsGraphic(char) || unicode.IsSpace(char) || strings.ContainsRune("/?#@[]:%\\<>\"^`{|}", char)
}
