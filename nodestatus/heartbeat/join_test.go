// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package heartbeat_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/nodestatus/heartbeat"
)

// cidrSetter records the prefixes of the last call.
type cidrSetter struct{ prefixes []netip.Prefix }

func (s *cidrSetter) SetPodCIDRs(_ context.Context, prefixes []netip.Prefix) error {
	s.prefixes = prefixes
	return nil
}

func TestSetPodCIDRsPassesParsedPrefixes(t *testing.T) {
	setter := &cidrSetter{}
	set := heartbeat.SetPodCIDRs(setter)
	require.NoError(t, set(t.Context(), []string{"10.1.0.0/24", "fd00::/64"}))
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.1.0.0/24"), netip.MustParsePrefix("fd00::/64")}, setter.prefixes)
	require.ErrorContains(t, set(t.Context(), []string{"10.1.0.0"}), "podCIDRs of the Node: ")
	require.Len(t, setter.prefixes, 2, "the runtime is not called with the valid prefixes only")
}

func TestJoinHooksCallsEachHookAndSkipsNil(t *testing.T) {
	var calls []string
	hooks := func(name string) heartbeat.ReporterHooks {
		return heartbeat.ReporterHooks{
			Registered:   func(*corev1.Node) { calls = append(calls, name+" registered") },
			Reported:     func(*corev1.Node) { calls = append(calls, name+" reported") },
			VolumesInUse: func([]corev1.UniqueVolumeName) { calls = append(calls, name+" volumes") },
			Deleted:      func() { calls = append(calls, name+" deleted") },
			Error:        func(error) { calls = append(calls, name+" error") },
		}
	}
	joined := heartbeat.JoinHooks(hooks("a"), heartbeat.ReporterHooks{}, hooks("b"))
	joined.Registered(nil)
	joined.Reported(nil)
	joined.VolumesInUse(nil)
	joined.Deleted()
	joined.Error(errors.New("x"))
	require.Equal(t, []string{
		"a registered", "b registered", "a reported", "b reported", "a volumes", "b volumes", "a deleted", "b deleted", "a error", "b error",
	}, calls)
}
