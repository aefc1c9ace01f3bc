// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package takeover_test

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/internal/takeover"
)

const checkpoint = "device-plugins/" + plugin.CheckpointName

// cpuCheckpoint is a file of the kubelet in the root directory, as the file checkpoint is.
const cpuCheckpoint = "cpu_manager_state"

// checkpoints returns the files that replace the records of devices and CPUs. The file of CPUs can be read if it is not empty.
func checkpoints() []takeover.Checkpoint {
	return []takeover.Checkpoint{
		takeover.NewCheckpoint("devices", checkpoint, plugin.ReadCheckpoint),
		takeover.NewCheckpoint("cpus", cpuCheckpoint, func(path string) ([]byte, error) {
			content, err := os.ReadFile(path)
			if err == nil && len(content) == 0 {
				err = errors.New("the file is empty")
			}
			return content, err
		}),
	}
}

// node is the root directory of agents and kubelets, with the records of an agent.
type node struct {
	t       *testing.T
	dir     string
	socket  string
	records []string
}

func newNode(t *testing.T) *node {
	base, err := os.MkdirTemp("", "k") // a short path
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, os.RemoveAll(base)) })
	n := &node{t: t, dir: base, socket: filepath.Join(base, "pod-resources/kubelet.sock")}
	require.NoError(t, os.Mkdir(filepath.Dir(n.socket), 0o700))
	n.writeRecords()
	return n
}

func (n *node) writeRecords() {
	n.records = []string{"cpus", "devices", "pods.store", "probes"}
	for _, name := range append(slices.Clone(n.records), "pods/uid-a/etc-hosts", "volumes") {
		path := filepath.Join(n.dir, name)
		require.NoError(n.t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(n.t, os.WriteFile(path, []byte("x"), 0o600))
	}
	require.NoError(n.t, plugin.ExportTo(filepath.Join(n.dir, checkpoint))(nil, nil))
	require.NoError(n.t, os.WriteFile(filepath.Join(n.dir, cpuCheckpoint), []byte("x"), 0o600))
}

// listRecords returns the records that exist.
func (n *node) listRecords() []string {
	return slices.DeleteFunc(slices.Clone(n.records), func(name string) bool {
		_, err := os.Lstat(filepath.Join(n.dir, name))
		return err != nil
	})
}

// createSocket creates a socket with a temporary name, as agents do before the rename.
func (n *node) createSocket() (temporary string) {
	temporary = n.socket + "~"
	_ = os.Remove(temporary)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	require.NoError(n.t, err)
	l.SetUnlinkOnClose(false)
	require.NoError(n.t, l.Close())
	return temporary
}

// serve replaces the socket, as kubelets do at the start.
func (n *node) serve() { require.NoError(n.t, os.Rename(n.createSocket(), n.socket)) }

// killAt is the time at which an agent is killed.
type killAt int

const (
	beforeMark killAt = iota
	beforeRename
	afterRename
)

// stop removes the socket, as an agent that stops.
func (n *node) stop() { _ = os.Remove(n.socket) }

// startAgent starts an agent, and kills it after it has served the socket.
func (n *node) startAgent() (removed bool) { return n.startAgentUntil(afterRename) }

func (n *node) startAgentUntil(kill killAt) (removed bool) {
	var log bytes.Buffer
	takeover.RemoveStale(n.dir, slog.New(slog.NewTextHandler(&log, nil)), checkpoints()...)
	require.NotContains(n.t, log.String(), "ERROR")
	removed = len(n.listRecords()) == 0
	if !removed {
		require.Equal(n.t, n.records, n.listRecords())
		require.Empty(n.t, log.String())
	}
	n.writeRecords()
	temporary := n.createSocket()
	if kill >= beforeRename {
		require.NoError(n.t, takeover.Mark(temporary, n.socket))
	}
	if kill >= afterRename {
		require.NoError(n.t, os.Rename(temporary, n.socket))
	}
	return removed
}

func TestRecordsRemovedAfterKubelet(t *testing.T) {
	n := newNode(t)
	require.False(t, n.startAgent(), "the first start")
	require.False(t, n.startAgent(), "after a kill")
	n.stop()
	require.False(t, n.startAgent(), "after a stop")
	n.serve()
	require.True(t, n.startAgent(), "after a kubelet, and a kill of the agent")
	require.False(t, n.startAgent(), "after a kill")
	n.stop()
	n.serve()
	n.serve()
	require.True(t, n.startAgent(), "after two starts of a kubelet, and a stop of the agent")
	for range 2 {
		require.NoError(t, takeover.Mark(n.socket, n.socket), "the same socket again")
	}
	require.False(t, n.startAgent())
	entries, err := os.ReadDir(filepath.Dir(n.socket))
	require.NoError(t, err)
	require.Len(t, entries, 3, "the socket and two marks")
}

// An agent may be killed at any time of its start, and several times.
func TestRecordsStayAfterKills(t *testing.T) {
	for _, first := range []killAt{beforeMark, beforeRename, afterRename} {
		for _, second := range []killAt{beforeMark, beforeRename, afterRename} {
			n := newNode(t)
			require.False(t, n.startAgent())
			for _, kill := range []killAt{first, second, second, first} {
				require.False(t, n.startAgentUntil(kill), "kills %d and %d", first, second)
			}
			n.serve()
			require.True(t, n.startAgentUntil(first), "after a kubelet")
			require.False(t, n.startAgentUntil(second))
			require.False(t, n.startAgentUntil(first))
		}
	}
}

// An agent that never serves the socket, such as one without devices, removes the records once per run of a kubelet.
func TestRecordsRemovedOncePerKubelet(t *testing.T) {
	n := newNode(t)
	for range 2 {
		n.serve()
		require.True(t, n.startAgentUntil(beforeMark))
		require.False(t, n.startAgentUntil(beforeMark))
		require.False(t, n.startAgentUntil(beforeMark))
	}
}

// An agent that takes a node over for the first time has no mark.
func TestRecordsRemovedAtFirstTakeover(t *testing.T) {
	n := newNode(t)
	n.serve()
	require.True(t, n.startAgent())
}

// Each record is removed or stays with its own checkpoint.
func TestRecordStaysWithDamagedCheckpointOfCPUs(t *testing.T) {
	n := newNode(t)
	n.serve()
	require.NoError(t, os.WriteFile(filepath.Join(n.dir, cpuCheckpoint), nil, 0o600))
	var log bytes.Buffer
	takeover.RemoveStale(n.dir, slog.New(slog.NewTextHandler(&log, nil)), checkpoints()...)
	require.Equal(t, []string{"cpus"}, n.listRecords())
	require.Contains(t, log.String(), `level=ERROR msg="a record from before the run of a kubelet is used" record=cpus`)
}

func TestDeviceRecordStaysWithoutCheckpoint(t *testing.T) {
	n := newNode(t)
	n.serve()
	require.NoError(t, os.Remove(filepath.Join(n.dir, checkpoint)))
	var log bytes.Buffer
	takeover.RemoveStale(n.dir, slog.New(slog.NewTextHandler(&log, nil)), checkpoints()...)
	require.Equal(t, []string{"devices"}, n.listRecords())
	require.NotContains(t, log.String(), "ERROR")
}

// A damaged checkpoint says nothing about devices. The other records are removed, once.
func TestDeviceRecordStaysWithDamagedCheckpoint(t *testing.T) {
	n := newNode(t)
	n.serve()
	require.NoError(t, os.WriteFile(filepath.Join(n.dir, checkpoint), []byte(`{"Checksum":1}`), 0o600))
	var log bytes.Buffer
	takeover.RemoveStale(n.dir, slog.New(slog.NewTextHandler(&log, nil)), checkpoints()...)
	require.Equal(t, []string{"devices"}, n.listRecords())
	require.Contains(t, log.String(), "the file is damaged")
	n.writeRecords()
	require.False(t, n.startAgentUntil(beforeMark))
}

func TestOtherFilesStay(t *testing.T) {
	n := newNode(t)
	n.serve()
	record := filepath.Join(n.dir, "pods/uid-a/record.json")
	require.NoError(t, os.WriteFile(record, []byte(`{"version":1,"pod":"ns/web","source":"api","sized":"x"}`), 0o600))
	takeover.RemoveStale(n.dir, slog.New(slog.DiscardHandler), checkpoints()...)
	require.Empty(t, n.listRecords())
	for _, name := range []string{"pods/uid-a/etc-hosts", "volumes", checkpoint, "pod-resources/kubelet.sock"} {
		require.FileExists(t, filepath.Join(n.dir, name))
	}
	content, err := os.ReadFile(record)
	require.NoError(t, err)
	require.Equal(t, `{"version":1,"pod":"ns/web","source":"api","admissionPending":true}`, string(content))
}

// Errors are logged, and the remaining records are removed.
func TestErrorsLogged(t *testing.T) {
	n := newNode(t)
	n.serve()
	stuck := filepath.Join(n.dir, "probes")
	require.NoError(t, os.Remove(stuck))
	require.NoError(t, os.MkdirAll(filepath.Join(stuck, "a"), 0o700))
	var log bytes.Buffer
	takeover.RemoveStale(n.dir, slog.New(slog.NewTextHandler(&log, nil)), checkpoints()...)
	require.Contains(t, log.String(), "directory not empty")
	require.Equal(t, []string{"probes"}, n.listRecords())
	require.NoError(t, os.RemoveAll(stuck))
	n.writeRecords()
	require.True(t, n.startAgent(), "the failed removal is repeated")
	require.ErrorContains(t, takeover.Mark(filepath.Join(n.dir, "none"), n.socket), "mark a socket of the podresources API")
	takeover.RemoveStale("", nil)
}
