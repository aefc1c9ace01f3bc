// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package cni

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/types/create"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// decode checks and converts data, the output of an ADD, as the package does for a plugin.
func decode(data []byte) (*Result, error) {
	if err := checkResult(data); err != nil {
		return nil, err
	}
	r, err := create.CreateFromBytes(data)
	if err != nil {
		return nil, err
	}
	return convertResult(r)
}

func TestConvertResult(t *testing.T) {
	many := func(n int, entry string) string { return strings.TrimSuffix(strings.Repeat(entry+",", n), ",") }
	for name, test := range map[string]struct{ data, err string }{
		"empty":              {`{"cniVersion":"1.1.0"}`, ""},
		"both families":      {`{"cniVersion":"1.1.0","ips":[{"address":"10.0.0.2/24","gateway":"10.0.0.1"},{"address":"fd00::2/64"}]}`, ""},
		"before 0.3.0":       {`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24"},"ip6":{"ip":"fd00::2/64"}}`, ""},
		"0.4.0":              {`{"cniVersion":"0.4.0","interfaces":[{"name":"eth0"}],"ips":[{"version":"4","interface":0,"address":"10.0.0.2/24"}]}`, ""},
		"no object":          {`[]`, "not a JSON object"},
		"unknown version":    {`{"cniVersion":"9.0.0"}`, "unsupported CNI result version"},
		"no address":         {`{"cniVersion":"1.0.0","ips":[{}]}`, "ips[0]: address: not an address"},
		"no prefix":          {`{"cniVersion":"1.0.0","ips":[{"address":"10.0.0.2"}]}`, "invalid CIDR address"},
		"any address":        {`{"cniVersion":"1.0.0","ips":[{"address":"0.0.0.0/0"}]}`, "ips[0]: address: 0.0.0.0 cannot be that of an interface"},
		"multicast":          {`{"cniVersion":"1.0.0","ips":[{"address":"ff02::1/128"}]}`, "ff02::1 cannot be"},
		"null address":       {`{"cniVersion":"0.4.0","ips":[null]}`, "ips[0] is null"},
		"null interface":     {`{"cniVersion":"0.4.0","interfaces":[{"name":"a"},null]}`, "interfaces[1] is null"},
		"null route":         {`{"cniVersion":"1.0.0","routes":[null]}`, "routes[0] is null"},
		"no interface":       {`{"cniVersion":"1.0.0","interfaces":[{"name":"a"}],"ips":[{"address":"10.0.0.2/24","interface":1}]}`, "number 1 does not exist, there are 1"},
		"negative interface": {`{"cniVersion":"1.0.0","interfaces":[{"name":"a"}],"ips":[{"address":"10.0.0.2/24","interface":-1}]}`, "number -1 does not exist, there are 1"},
		"many addresses":     {`{"cniVersion":"1.0.0","ips":[` + many(257, `{"address":"10.0.0.2/24"}`) + `]}`, "ips: 257 entries exceed the limit of 256"},
		"many routes":        {`{"cniVersion":"1.0.0","routes":[` + many(1025, `{"dst":"10.0.0.0/24"}`) + `]}`, "routes: 1025 entries exceed"},
		"many interfaces":    {`{"cniVersion":"1.0.0","interfaces":[` + many(257, `{"name":"a"}`) + `]}`, "interfaces: 257 entries exceed"},
		"many old routes":    {`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","routes":[` + many(1025, `{"dst":"10.0.0.0/24"}`) + `]}}`, "routes: 1025 entries exceed"},
		"many servers":       {`{"cniVersion":"1.0.0","dns":{"nameservers":[` + many(65, `"10.0.0.1"`) + `]}}`, "dns: 65 entries exceed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode([]byte(test.data))
			if test.err == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, test.err)
		})
	}
}

func TestPodIPs(t *testing.T) {
	const eth, other, none = "eth0", "eth1", ""
	for _, test := range []struct {
		ips    [][2]string // address, interface
		prefer Family
		want   string
	}{
		{nil, IPv4, "[]"},
		{[][2]string{{"10.0.0.2/8", eth}}, IPv6, "[10.0.0.2]"},
		{[][2]string{{"fd00::2/64", eth}, {"10.0.0.2/8", eth}}, IPv4, "[10.0.0.2 fd00::2]"},
		{[][2]string{{"fd00::2/64", eth}, {"10.0.0.2/8", eth}}, AnyFamily, "[fd00::2 10.0.0.2]"},
		{[][2]string{{"10.0.0.2/8", eth}, {"10.0.0.3/8", eth}, {"fd00::2/64", eth}, {"fd00::3/64", eth}}, IPv6, "[fd00::2 10.0.0.2 10.0.0.3 fd00::3]"},
		{[][2]string{{"10.0.0.2/8", other}, {"10.0.0.3/8", none}, {"127.0.0.1/8", eth}}, IPv4, "[10.0.0.3]"},
	} {
		r := &Result{}
		for _, ip := range test.ips {
			r.IPs = append(r.IPs, IP{Address: netip.MustParsePrefix(ip[0]), Interface: ip[1]})
		}
		assert.Equal(t, test.want, fmt.Sprint(podIPs(r, eth, test.prefer)), "%+v", test)
	}
}

// No output of a plugin causes a panic, and a converted result is within the limits.
func FuzzResult(f *testing.F) {
	f.Add([]byte(`{"cniVersion":"1.1.0","interfaces":[{"name":"eth0","mtu":1,"sandbox":"/x"}],"ips":[{"interface":0,"address":"10.0.0.2/24","gateway":"10.0.0.1"}],"routes":[{"dst":"0.0.0.0/0","gw":"10.0.0.1","mtu":1,"priority":2}],"dns":{"nameservers":["10.0.0.1"]}}`))
	f.Add([]byte(`{"cniVersion":"0.4.0","interfaces":[{"name":"eth0"}],"ips":[{"version":"6","interface":0,"address":"fd00::2/64"}]}`))
	f.Add([]byte(`{"cniVersion":"0.2.0","ip4":{"ip":"10.0.0.2/24","gateway":"10.0.0.1","routes":[{"dst":"0.0.0.0/0"}]},"ip6":{"ip":"fd00::2/64"}}`))
	f.Add([]byte(`{"cniVersion":"1.0.0","ips":[null],"IPS":[{}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := decode(data)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(r.IPs), maxIPs)
		require.LessOrEqual(t, len(r.Interfaces), maxInterfaces)
		for _, ip := range r.IPs {
			require.True(t, ip.Address.IsValid())
			require.False(t, ip.Address.Addr().Is4In6())
		}
		podIPs(r, "eth0", IPv6)
	})
}
