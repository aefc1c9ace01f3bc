// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Runtime is a container runtime without isolation: it serves package cri/process, whose containers are processes of this
// machine, to CRI clients such as crictl and the kubelet. When it stops, the processes continue, and the next start finds them
// again:
//
//	runtime -state /tmp/node -socket /tmp/node.sock &
//	crictl --runtime-endpoint unix:///tmp/node.sock pods
//	crictl --runtime-endpoint unix:///tmp/node.sock exec -it CONTAINER sh
//
// As root it gives pods their own network, and containers mounts and cgroups:
//
//	runtime -cni-conf /etc/cni/net.d -mounts -cgroups / &
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"github.com/seed81659283/nodeagent/cni"
	"github.com/seed81659283/nodeagent/cri/criserver"
	"github.com/seed81659283/nodeagent/cri/process"
	"github.com/seed81659283/nodeagent/cri/streaming"
)

func main() {
	process.Main() // returns at once unless this program was started as a shim
	f := &flags{}
	flag.StringVar(&f.state, "state", "/var/lib/nodeagent/processes", "directory of what runs")
	flag.StringVar(&f.socket, "socket", "/run/nodeagent.sock", "where to serve it, to the user of this program alone")
	flag.StringVar(&f.cniConf, "cni-conf", "", "directory of CNI configuration files; none: pods are on the host's network")
	flag.StringVar(&f.cniPlugins, "cni-plugins", cni.DefaultPluginDir, "directory of CNI plugins")
	flag.StringVar(&f.netns, "netns", cni.DefaultNetnsDir, "directory of network namespaces, of this program alone")
	flag.BoolVar(&f.mounts, "mounts", false, "containers have a mount namespace of their own, with their volumes")
	flag.StringVar(&f.cgroups, "cgroups", "", "cgroup that containers are below, such as /; none: they are not limited")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := f.serveRuntime(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "runtime:", err)
		os.Exit(1)
	}
}

// flags contains the values of the flags.
type flags struct {
	state, socket, cniConf, cniPlugins, netns, cgroups string
	mounts                                             bool
}

// serveRuntime serves the CRI until ctx ends.
func (f *flags) serveRuntime(ctx context.Context) (err error) {
	o, closers, err := f.openIsolation(ctx)
	defer func() {
		for _, close := range closers {
			err = errors.Join(err, close())
		}
	}()
	if err != nil {
		return err
	}
	o.Logger = slog.Default()
	runtime, err := process.Open(f.state, o) // only one program at a time can open the directory
	if err != nil {
		return err
	}
	defer runtime.Close()
	// A killed program leaves its socket.
	if err := os.Remove(f.socket); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	l, err := net.Listen("unix", f.socket)
	if err != nil {
		return err
	}
	if err := os.Chmod(f.socket, 0o600); err != nil {
		return errors.Join(err, l.Close())
	}
	sessions, err := streaming.New(streaming.Options{Runner: runtime, Logger: o.Logger})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	local, err := net.Listen("tcp", "127.0.0.1:0") // where exec, attach and port-forward are served
	if err != nil {
		return errors.Join(err, l.Close())
	}
	urls := streaming.NewURLServer(sessions, streaming.URLOptions{Logger: o.Logger})
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var serving sync.WaitGroup
	var failure error
	serving.Go(func() {
		defer stop() // both servers stop together
		failure = urls.Serve(ctx, local)
	})
	err = criserver.New(runtime, criserver.Options{Streamer: urls}).Serve(ctx, l)
	stop()
	serving.Wait()
	return errors.Join(err, failure)
}
