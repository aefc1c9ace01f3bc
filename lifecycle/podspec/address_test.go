// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package podspec_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/lifecycle/podspec"
)

// It keeps an address that the kubelet reads from being dropped, and one that it does not read from being taken.
func TestParseAddress(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1":           "10.0.0.1",
		"010.000.00000.001":  "10.0.0.1",
		"0.0.0.0":            "0.0.0.0",
		"::":                 "::",
		"fd00::0":            "fd00::",
		"fd00:0000::00a0":    "fd00::a0",
		"FD00::000000A":      "fd00::a",
		"::ffff:10.0.0.1":    "10.0.0.1",
		"::ffff:010.0.0.001": "10.0.0.1",
		"":                   "",
		"0":                  "",
		"10.0.0":             "",
		"10.0.0.256":         "",
		"10.0.0.1/24":        "",
		"10.0.0.1\n6.6.6.6":  "",
		"0x0a.0.0.1":         "",
		"fe80::1%eth0":       "",
		"fd00::12345":        "",
		" 10.0.0.1":          "",
		"example.com":        "",
	} {
		got, ok := podspec.ParseAddress(text)
		require.Equal(t, want != "", ok, "%q", text)
		if ok {
			assert.Equal(t, want, got.String(), "%q", text)
		}
	}
}

// It keeps the hosts file free of lines that the runtime's answer could smuggle in, and of addresses that no C library
// reads.
func TestHostsFileHasAddressesAlone(t *testing.T) {
	got, err := podspec.HostsFile(pod(t, ""), []string{"010.0.0.2", "10.0.0.3\n6.6.6.6\tbank", "fd00::0002"}, nil, podspec.Options{})
	require.NoError(t, err)
	assert.Contains(t, string(got), "fe00::2\tip6-allrouters\n10.0.0.2\tweb\nfd00::2\tweb\n")
	assert.NotContains(t, string(got), "bank")
}
