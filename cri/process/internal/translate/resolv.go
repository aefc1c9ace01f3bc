// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"strings"

	"github.com/seed81659283/nodeagent/cri"
)

// ResolvConf returns the content of resolv.conf(5) for the DNS settings of a pod. It returns an error if a value is empty or
// contains a blank.
func ResolvConf(dns *cri.DNSConfig) (string, error) {
	var text strings.Builder
	for _, list := range []struct {
		key     string
		values  []string
		perLine bool
	}{{"nameserver", dns.Servers, true}, {"search", dns.Searches, false}, {"options", dns.Options, false}} {
		for i, v := range list.values {
			if v == "" || strings.ContainsAny(v, " \t\n\x00") {
				return "", fmt.Errorf("dns_config: %s %q is empty or holds a blank", list.key, v)
			}
			if i == 0 || list.perLine {
				text.WriteString(list.key)
			}
			text.WriteString(" " + v)
			if i == len(list.values)-1 || list.perLine {
				text.WriteString("\n")
			}
		}
	}
	return text.String(), nil
}
