// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package userns_test

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/lifecycle/userns"
)

func pod(uid string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-" + uid, UID: types.UID(uid)}}
}

func open(t *testing.T, root string, o userns.Options) *userns.Ranges {
	r, err := userns.New(root, o)
	require.NoError(t, err)
	return r
}

// assignFirstID assigns a range to the pod and returns its first host ID.
func assignFirstID(t *testing.T, r *userns.Ranges, uid string) uint32 {
	m, err := r.Assign(pod(uid))
	require.NoError(t, err)
	require.Zero(t, m.ContainerID)
	require.EqualValues(t, userns.Length, m.Length)
	return m.HostID
}

// A pod keeps its range across restarts of the agent, until its directory is removed.
func TestAssignReturnsStoredRange(t *testing.T) {
	root := filepath.Join(t.TempDir(), "pods")
	r := open(t, root, userns.Options{Count: 2})
	require.EqualValues(t, 65536, assignFirstID(t, r, "a"))
	require.EqualValues(t, 131072, assignFirstID(t, r, "b"))
	require.EqualValues(t, 65536, assignFirstID(t, r, "a"))
	_, err := r.Assign(pod("c"))
	require.EqualError(t, err, "user namespace of pod shop/web-c: all 2 ranges are taken")

	r = open(t, root, userns.Options{Count: 2})
	require.EqualValues(t, 131072, assignFirstID(t, r, "b"))
	require.NoError(t, os.RemoveAll(filepath.Join(root, "a")))
	require.EqualValues(t, 65536, assignFirstID(t, r, "c"))
}

// A range in a file of the kubelet is read, and counts as used.
func TestAssignReadsKubeletsFile(t *testing.T) {
	root := t.TempDir()
	writeRangeFile(t, root, "k", `{"uidMappings":[{"hostId":65536,"containerId":0,"length":65536}],"gidMappings":[{"hostId":65536,"containerId":0,"length":65536}]}`)
	r := open(t, root, userns.Options{})
	require.EqualValues(t, 131072, assignFirstID(t, r, "a"))
	require.EqualValues(t, 65536, assignFirstID(t, r, "k"))
	data, err := os.ReadFile(filepath.Join(root, "a", "userns"))
	require.NoError(t, err)
	require.JSONEq(t, `{"uidMappings":[{"hostId":131072,"containerId":0,"length":65536}],"gidMappings":[{"hostId":131072,"containerId":0,"length":65536}]}`, string(data))
}

// writeRangeFile writes the range file of a pod.
func writeRangeFile(t *testing.T, root, uid, content string) {
	require.NoError(t, os.MkdirAll(filepath.Join(root, uid), 0o750))
	require.NoError(t, os.WriteFile(filepath.Join(root, uid, "userns"), []byte(content), 0o600))
}

// With a damaged range file no new range is assigned, because its pod may use any range. The error names the file.
func TestAssignRefusesDamagedFile(t *testing.T) {
	for content, want := range map[string]string{
		`{`:  "unexpected end of JSON input",
		`{}`: "want one range",
		`{"uidMappings":[{"hostId":65536,"length":65536}],"gidMappings":[{"hostId":131072,"length":65536}]}`: "want one range",
		`{"uidMappings":[{"hostId":0,"length":65536}],"gidMappings":[{"hostId":0,"length":65536}]}`:          "not a range of this package",
		`{"uidMappings":[{"hostId":65537,"length":65536}],"gidMappings":[{"hostId":65537,"length":65536}]}`:  "not a range of this package",
		`{"uidMappings":[{"hostId":65536,"length":1}],"gidMappings":[{"hostId":65536,"length":1}]}`:          "not a range of this package",
	} {
		root := t.TempDir()
		writeRangeFile(t, root, "bad", content)
		r := open(t, root, userns.Options{})
		for _, uid := range []string{"bad", "other"} {
			_, err := r.Assign(pod(uid))
			require.ErrorContains(t, err, "shop/web-"+uid)
			require.ErrorContains(t, err, filepath.Join(root, "bad", "userns"))
			require.ErrorContains(t, err, want)
		}
	}
}

func TestNewAndAssignRefuseInvalidInput(t *testing.T) {
	for _, o := range []userns.Options{{First: 1}, {First: 65536 + 1}, {Count: -1}, {Count: 65536}, {First: 1 << 31, Count: 32769}} {
		_, err := userns.New("/x", o)
		require.Error(t, err, "%+v", o)
	}
	_, err := userns.New("", userns.Options{})
	require.Error(t, err)
	r := open(t, t.TempDir(), userns.Options{})
	for _, uid := range []string{"", ".", "..", "a/b", "a\x00"} {
		_, err := r.Assign(pod(uid))
		require.ErrorContains(t, err, "is not a valid file name", "%q", uid)
	}
}

// The last range includes the last ID, and pods that start concurrently get different ranges.
func TestAssignUsesAllRanges(t *testing.T) {
	r := open(t, t.TempDir(), userns.Options{First: 0xffff0000 - 7*userns.Length})
	var mu sync.Mutex
	seen := map[uint32]bool{}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			m, err := r.Assign(pod(strings.Repeat("x", i+1)))
			mu.Lock()
			defer mu.Unlock()
			if err != nil || seen[m.HostID] {
				t.Errorf("%d: %v", m.HostID, err)
			}
			seen[m.HostID] = true
		})
	}
	wg.Wait()
	require.True(t, seen[0xffff0000])
	_, err := r.Assign(pod("one-more"))
	require.ErrorContains(t, err, "all 8 ranges are taken")
}
