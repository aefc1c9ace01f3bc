// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOptionsRequireRoot(t *testing.T) {
	for option, o := range map[string]Options{
		"Network": {Network: struct{ Network }{}}, "Mounts": {Mounts: true}, "Cgroups": {Cgroups: struct{ Cgroups }{}},
	} {
		require.EqualError(t, o.checkUser(1000), "option "+option+" takes root, not user 1000: leave it out or run as root")
		require.NoError(t, o.checkUser(0))
	}
	require.NoError(t, Options{}.checkUser(1000))
}
