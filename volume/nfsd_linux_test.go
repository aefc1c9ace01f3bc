// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// nfsd is the NFS server of the kernel with one export, and a relay for its clients. It needs no mountd: the test writes the
// kernel's export caches.
type nfsd struct {
	dir   string // exported directory, as the root
	relay *relay
}

// nfsdPort is the port of the server in the kernel.
const nfsdPort = 2049

// serveNFS starts the server in a network namespace of its own, because there is one server per kernel network namespace.
func serveNFS(t *testing.T) *nfsd {
	t.Helper()
	if os.Getenv("IN_TEST_VM") == "" {
		t.Skip("nfsd is shared by the whole kernel: use make test-vm")
	}
	s, control := &nfsd{dir: filepath.Join(t.TempDir(), "export")}, t.TempDir()
	require.NoError(t, os.Mkdir(s.dir, 0o777))
	require.NoError(t, os.Chmod(s.dir, 0o777))
	require.NoError(t, unix.Mount("nfsd", control, "nfsd", 0, ""), "the kernels of hack/vm have nfsd")
	write := func(path, text string) {
		require.NoError(t, os.WriteFile(path, []byte(text+"\n"), 0))
	}
	const (
		forEver = 1<<31 - 1
		flags   = 0x2 | 0x10 | 0x400 | 0x2000 // insecure, async, no_subtree_check, fsid=0
		nobody  = 65534
	)
	write(control+"/versions", "-3 +4 +4.1 +4.2") // version 3 needs an rpcbind
	write(control+"/nfsv4recoverydir", t.TempDir())
	write("/proc/net/rpc/auth.unix.ip/channel", fmt.Sprintf("nfsd 127.0.0.1 %d client", forEver))
	write("/proc/net/rpc/nfsd.export/channel", fmt.Sprintf("client %s %d %d %d %d 0", s.dir, forEver, flags, nobody, nobody))
	write("/proc/net/rpc/nfsd.fh/channel", fmt.Sprintf(`client 1 \x00000000 %d %s`, forEver, s.dir))
	write(control+"/portlist", fmt.Sprint("tcp ", nfsdPort))
	write(control+"/threads", "2")
	write(control+"/v4_end_grace", "Y") // skips the grace period for clients of an earlier server
	t.Cleanup(func() {
		write(control+"/threads", "0")
		for _, cache := range []string{"nfsd.fh", "nfsd.export", "auth.unix.ip"} {
			write("/proc/net/rpc/"+cache+"/flush", fmt.Sprint(forEver))
		}
		require.NoError(t, unix.Unmount(control, 0))
	})
	s.relay = newRelay(t, fmt.Sprint("127.0.0.1:", nfsdPort))
	return s
}

// volume returns a PV for an exported path. It contains the address, because mount.nfs is not available to resolve it.
func (s *nfsd) volume(name, path string) *corev1.PersistentVolume {
	pv := newPV(name, 1)
	pv.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "127.0.0.1", Path: path}}
	pv.Spec.MountOptions = []string{"vers=4.2", "addr=127.0.0.1", "clientaddr=127.0.0.1", fmt.Sprint("port=", s.relay.port())}
	return pv
}

// relay forwards TCP connections. After hang it stops, like a server that does not respond.
type relay struct {
	listener net.Listener
	to       string

	mu    sync.Mutex    // guards the fields below
	awake chan struct{} // closed while the relay forwards
}

func newRelay(t *testing.T, to string) *relay {
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	r := &relay{listener: l, to: to, awake: make(chan struct{})}
	close(r.awake)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { r.serve(ctx, &wg) })
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		wg.Wait()
	})
	return r
}

func (r *relay) port() int { return r.listener.Addr().(*net.TCPAddr).Port }

// hang stops forwarding in the two directions.
func (r *relay) hang() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.awake = make(chan struct{})
}

// wake continues forwarding, including data that was held back.
func (r *relay) wake() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.awake)
}

func (r *relay) serve(ctx context.Context, wg *sync.WaitGroup) {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		wg.Go(func() {
			defer client.Close()
			server, err := net.Dial("tcp4", r.to)
			if err != nil {
				return
			}
			defer server.Close()
			both, cancel := context.WithCancel(ctx)
			defer cancel()
			stop := context.AfterFunc(both, func() { _ = client.Close(); _ = server.Close() })
			defer stop()
			wg.Go(func() { r.copyWhileAwake(both, server, client); cancel() })
			r.copyWhileAwake(both, client, server)
		})
	}
}

// copyWhileAwake copies from one connection to the other while the relay is awake.
func (r *relay) copyWhileAwake(ctx context.Context, to io.Writer, from io.Reader) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		awake := r.awake
		r.mu.Unlock()
		select {
		case <-awake:
		case <-ctx.Done():
			return
		}
		if _, writeErr := to.Write(buf[:n]); err != nil || writeErr != nil {
			return
		}
	}
}
