// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Cni attaches a network namespace to the pod network, prints its addresses and routes, runs a command in it, and detaches it.
// It requires root, and uses the CNI configuration and plugins of this machine:
//
//	cni -name web -host-port 8080 -port 80 ip address
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/seed81659283/nodeagent/cni"
	"github.com/seed81659283/nodeagent/cni/netns"
)

func main() {
	conf := flag.String("conf", cni.DefaultConfDir, "directory of CNI configuration files")
	plugins := flag.String("plugins", cni.DefaultPluginDir, "directory of CNI plugins")
	state := flag.String("state", "/run/nodeagent/cni", "directory of records and network namespaces")
	name := flag.String("name", "example", "name of the pod")
	port := flag.Int("port", 80, "port of the pod")
	hostPort := flag.Int("host-port", 0, "port of the host that leads there; 0 for none")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	pods, err := cni.Open(*state, cni.Options{ConfDir: *conf, PluginDirs: []string{*plugins}, NetnsDir: *state + "/netns"})
	if err == nil {
		pod := cni.Pod{SandboxID: *name, UID: *name, Namespace: "default", Name: *name, Ports: []cni.PortMapping{
			{HostPort: int32(*hostPort), ContainerPort: int32(*port)},
		}}
		err = errors.Join(runAttached(ctx, pods, pod, flag.Args()), pods.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "cni:", err)
		os.Exit(1)
	}
}

// runAttached attaches a pod, runs the command in its network namespace, and detaches the pod.
func runAttached(ctx context.Context, pods *cni.Pods, pod cni.Pod, command []string) (err error) {
	// Tear down the networks of a previous run that was killed.
	if err := pods.Retain(ctx, nil); err != nil {
		return err
	}
	status, err := pods.Setup(ctx, pod)
	if err != nil {
		return err
	}
	defer func() {
		err = errors.Join(err, pods.Teardown(context.WithoutCancel(ctx), pod.SandboxID))
	}()
	printStatus(os.Stdout, status)
	if len(command) == 0 {
		return nil
	}
	return netns.Do(status.Netns, func() error { // a child process inherits the namespace of its thread
		cmd := exec.CommandContext(ctx, command[0], command[1:]...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
		return cmd.Run()
	})
}

// printStatus prints the addresses, interfaces and routes of a pod.
func printStatus(w io.Writer, s *cni.PodStatus) {
	fmt.Fprintln(w, "network namespace", s.Netns)
	fmt.Fprintln(w, "addresses", s.IPs)
	for _, n := range s.Networks {
		fmt.Fprintf(w, "interface %s in network %s\n", n.Interface, n.Network)
		for _, ip := range n.Result.IPs {
			fmt.Fprintln(w, "  address", ip.Address, "gateway", ip.Gateway)
		}
		for _, r := range n.Result.Routes {
			fmt.Fprintln(w, "  route", r.Destination)
		}
	}
}
