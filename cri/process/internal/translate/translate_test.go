// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package translate_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/cri/process/internal/translate"
)

func TestResolvConf(t *testing.T) {
	text, err := translate.ResolvConf(&cri.DNSConfig{})
	require.NoError(t, err)
	require.Empty(t, text)
	text, err = translate.ResolvConf(&cri.DNSConfig{
		Servers: []string{"10.0.0.1", "fd00::1"}, Searches: []string{"a.b", "c"}, Options: []string{"ndots:5", "edns0"},
	})
	require.NoError(t, err)
	require.Equal(t, "nameserver 10.0.0.1\nnameserver fd00::1\nsearch a.b c\noptions ndots:5 edns0\n", text)
	for _, v := range []string{"", "a b", "a\nnameserver 6.6.6.6", "a\tb", "a\x00"} {
		for _, c := range []cri.DNSConfig{{Servers: []string{v}}, {Searches: []string{"a", v}}, {Options: []string{v}}} {
			_, err := translate.ResolvConf(&c)
			require.ErrorContains(t, err, "is empty or holds a blank")
		}
	}
}
