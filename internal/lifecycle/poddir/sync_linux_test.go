// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package poddir_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/seed81659283/nodeagent/internal/lifecycle/poddir"
)

// watchOpens returns a function that reports whether dir was opened since its last call. Only syncing a file name to disk opens
// dir.
func watchOpens(t *testing.T, dir string) func() bool {
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	require.NoError(t, err)
	t.Cleanup(func() { _ = unix.Close(fd) })
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_OPEN|unix.IN_ONLYDIR)
	require.NoError(t, err)
	return func() (opened bool) {
		events := make([]byte, 64<<10)
		n, err := unix.Read(fd, events)
		if errors.Is(err, unix.EAGAIN) {
			return false
		}
		require.NoError(t, err)
		for events = events[:n]; len(events) > 0; {
			// An inotify event has the fields watch, mask, cookie and name length, four bytes each.
			kind := uint32(events[4]) | uint32(events[5])<<8 | uint32(events[6])<<16 | uint32(events[7])<<24
			name := int(events[12]) | int(events[13])<<8
			opened = opened || kind&unix.IN_ISDIR != 0 && name == 0
			events = events[16+name:]
		}
		return opened
	}
}

// A terminal phase must survive a power failure, because otherwise the pod would run again. Other changes are not synced.
func TestTerminalPhaseSyncedToDisk(t *testing.T) {
	d := poddir.DirOf(t.TempDir(), "uid-a")
	r := poddir.NewRecorder(d, "default/a")
	require.NoError(t, r.Update(setTestedFields))
	synced := watchOpens(t, string(d))
	for _, step := range []struct {
		change func(st *corev1.PodStatus)
		want   bool
	}{
		{func(st *corev1.PodStatus) { st.Message = "running" }, false},
		{func(st *corev1.PodStatus) { st.Phase = corev1.PodSucceeded }, true},
		{func(*corev1.PodStatus) {}, false}, // unchanged record
		{func(st *corev1.PodStatus) { st.Phase = corev1.PodFailed }, true},
		{func(st *corev1.PodStatus) { st.Phase = corev1.PodPending }, false},
	} {
		require.NoError(t, r.Update(func(now *poddir.Record) {
			st := *now.Status
			step.change(&st)
			now.Status = &st
		}))
		require.Equal(t, step.want, synced(), r.Get().Status)
	}
}
