// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

// Device lets device plugins register, and prints their devices, the health of these devices, and the pods that hold them. It needs no container
// runtime: a flag stands for a pod.
//
//	device -dir /run/plugins -pod trainer=example.com/gpu:2 -pod render=example.com/gpu:1
//
// A plugin registers at kubelet.sock in the directory, as at /var/lib/kubelet/device-plugins of a node. The pods get their devices in the order
// of the flags. With -resources, other programs can ask for the devices with the kubelet's
// podresources API. The holders survive a restart of this program; a pod without its flag loses its devices.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/seed81659283/nodeagent/device"
	"github.com/seed81659283/nodeagent/device/plugin"
	"github.com/seed81659283/nodeagent/device/podresources"
)

func main() {
	var pods podFlags
	dir := flag.String("dir", "/run/nodeagent-device", "directory with kubelet.sock and the sockets of plugins")
	resources := flag.String("resources", "", "unix socket of the podresources API; empty: none")
	flag.Var(&pods, "pod", "NAME=RESOURCE:COUNT, a pod that needs devices; may be repeated")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := serve(ctx, os.Stdout, *dir, *resources, pods); err != nil {
		fmt.Fprintln(os.Stderr, "device:", err)
		os.Exit(1)
	}
}

// podFlags are pods with one container each.
type podFlags []device.Pod

// String returns nothing: the flag has no default.
func (p *podFlags) String() string { return "" }

// Set adds the pod of one flag.
func (p *podFlags) Set(text string) error {
	name, need, found := strings.Cut(text, "=")
	resource, count, counted := strings.Cut(need, ":")
	n, err := strconv.Atoi(count)
	if !found || !counted || err != nil || n < 1 || name == "" {
		return errors.New("want NAME=RESOURCE:COUNT")
	}
	*p = append(*p, device.Pod{UID: name, Namespace: "default", Name: name, Containers: []device.Container{
		{Name: "main", Limits: map[string]int{resource: n}},
	}})
	return nil
}

// serve runs the servers until ctx ends, and prints each change.
func serve(ctx context.Context, out io.Writer, dir, resources string, pods podFlags) error {
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	allocator, err := device.New(device.Options{Record: filepath.Join(dir, "holders"), Logger: log})
	if err != nil {
		return err
	}
	host, err := plugin.New(plugin.Options{Dir: dir, Receiver: allocator, Sockets: allocator.Sockets(), Logger: log})
	if err != nil {
		return err
	}
	parts := []func(context.Context) error{allocator.Run, host.Run}
	if resources != "" {
		server, err := podresources.New(podresources.Options{
			Socket: resources, Devices: allocator, Logger: log,
			Pods: podresources.PodsFunc(func() (active, inactive []device.Pod) { return pods, nil }),
		})
		if err != nil {
			return err
		}
		parts = append(parts, server.Run)
	}
	isListed := func(uid string) bool {
		return slices.ContainsFunc(pods, func(p device.Pod) bool { return p.UID == uid })
	}
	if err := allocator.Retain(isListed); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	failed := make(chan error, len(parts))
	for _, run := range parts {
		wg.Go(func() { failed <- run(ctx) })
	}
	view := printer{out: out, allocator: allocator, last: map[string]string{}}
	for {
		for i := range pods {
			view.reservePod(ctx, pods[i])
		}
		view.printDevices()
		select {
		case err := <-failed: // nil after ctx has ended
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// printer prints a line about each resource and pod when it has changed.
type printer struct {
	out       io.Writer
	allocator *device.Allocator
	last      map[string]string // the last line by subject
}

// printChange prints subject and text if the text for this subject has changed.
func (p *printer) printChange(subject, text string) {
	if p.last[subject] != text {
		p.last[subject] = text
		fmt.Fprintln(p.out, subject, text)
	}
}

// reservePod reserves the devices of a pod, and prints the devices or the error. serve calls it again for a pod that waits or is refused.
func (p *printer) reservePod(ctx context.Context, pod device.Pod) {
	if err := p.allocator.Reserve(ctx, pod); err != nil {
		p.printChange("pod "+pod.Name, err.Error())
		return
	}
	var held []string
	for _, h := range p.allocator.Health(pod.UID, "main") {
		held = append(held, fmt.Sprintf("%s of %s, %s", h.ID, h.Resource, h.Health))
	}
	p.printChange("pod "+pod.Name, "has "+strings.Join(held, "; "))
}

func (p *printer) printDevices() {
	for _, r := range p.allocator.Resources() {
		p.printChange("resource "+r.Name, fmt.Sprintf("has %d devices, %d of them healthy", r.Capacity, r.Allocatable))
	}
}
