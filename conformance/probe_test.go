// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/probe"
	grpcprobe "k8s.io/kubernetes/pkg/probe/grpc"
	httpprobe "k8s.io/kubernetes/pkg/probe/http"
	tcpprobe "k8s.io/kubernetes/pkg/probe/tcp"

	ours "github.com/seed81659283/nodeagent/probe"
	oursgrpc "github.com/seed81659283/nodeagent/probe/grpcprobe"
	ourshttp "github.com/seed81659283/nodeagent/probe/httpprobe"
	"github.com/seed81659283/nodeagent/probe/podprobe"
)

// probeOutcome is the result of one probe. Discarded means that the probe returned an error and does not count. The error is not
// compared.
type probeOutcome struct {
	Outcome   string
	Output    string
	Discarded bool
}

// probeCase is a probe of a server by the kubelet's prober and ours. Both must return the same result.
type probeCase struct {
	name    string
	handler corev1.ProbeHandler
	ports   []corev1.ContainerPort // ports of the container
	timeout time.Duration          // zero: longer than any response in these tests

	// meant is the reason of an intended difference, and want our result. The difference must occur.
	meant string
	want  probeOutcome
}

const loopback = "127.0.0.1"

// run compares both sides, and retries with a longer timeout, because a busy machine may be too slow for the expected
// result.
func (d probeCase) run(t *testing.T) {
	t.Helper()
	if d.timeout == 0 {
		d.timeout = 20 * time.Second
	}
	var differences []string
	for range 3 {
		if differences = d.compare(t); len(differences) == 0 {
			return
		}
		d.timeout *= 5
	}
	for _, difference := range differences {
		t.Error(difference)
	}
}

// compare runs the probe on both sides and returns the differences.
func (d probeCase) compare(t *testing.T) (differences []string) {
	t.Helper()
	container := &corev1.Container{Name: "c", Ports: d.ports, ReadinessProbe: &corev1.Probe{ProbeHandler: d.handler, PeriodSeconds: 10}}
	kubelet := normalizeProbe(d.kubelet(container))
	want := kubelet
	if d.meant != "" {
		want = normalizeProbe(d.want)
	}
	for _, fresh := range []bool{false, true} {
		first, again := d.ours(t, container, fresh)
		ours := normalizeProbe(again)
		if normalizeProbe(first) != ours {
			differences = append(differences, fmt.Sprintf("nodeagent returned %+v, and then %+v", first, again))
		}
		if d.meant != "" && ours == kubelet {
			differences = append(differences, "no difference anymore: "+d.meant)
		}
		if diff := cmp.Diff(want, ours); diff != "" {
			differences = append(differences, fmt.Sprintf("the kubelet or what is meant instead (-) and nodeagent (+) differ, fresh connections: %v\n%s", fresh, diff))
		}
	}
	return differences
}

// kubelet runs the probe like runProbe of pkg/kubelet/prober, which is a method of the kubelet's prober.
func (d probeCase) kubelet(c *corev1.Container) probeOutcome {
	p := c.ReadinessProbe
	switch {
	case p.HTTPGet != nil:
		request, err := httpprobe.NewRequestForHTTPGetAction(p.HTTPGet, c, loopback, "probe")
		if err != nil {
			return probeOutcome{Discarded: true}
		}
		return fromKubelet(httpprobe.New(false).Probe(request, d.timeout))
	case p.TCPSocket != nil:
		port, err := probe.ResolveContainerPort(p.TCPSocket.Port, c)
		if err != nil {
			return probeOutcome{Discarded: true}
		}
		host := p.TCPSocket.Host
		if host == "" {
			host = loopback
		}
		return fromKubelet(tcpprobe.New().Probe(host, port, d.timeout))
	case p.GRPC != nil:
		service := ""
		if p.GRPC.Service != nil {
			service = *p.GRPC.Service
		}
		options := grpcprobe.ProbeOptions{UseTLS: p.GRPC.Mode != nil && *p.GRPC.Mode == corev1.GRPCProbeModeTLS}
		return fromKubelet(grpcprobe.New().Probe(loopback, service, int(p.GRPC.Port), d.timeout, options))
	}
	return probeOutcome{Discarded: true} // missing probe handler
}

func fromKubelet(result probe.Result, output string, err error) probeOutcome {
	if err != nil {
		return probeOutcome{Discarded: true}
	}
	return probeOutcome{Outcome: string(result), Output: output}
}

func fromOurs(result ours.Result, err error) probeOutcome {
	if err != nil {
		return probeOutcome{Discarded: true}
	}
	return probeOutcome{Outcome: result.Outcome.String(), Output: result.Output}
}

// ours runs the probe twice with the prober that podprobe creates. Without fresh, the second probe can reuse connections.
func (d probeCase) ours(t *testing.T, c *corev1.Container, fresh bool) (first, again probeOutcome) {
	t.Helper()
	pool := ourshttp.NewPool(ourshttp.PoolOptions{})
	defer pool.Close()
	options := podprobe.Options{
		Pool: pool, FreshConnections: fresh,
		GRPC: func(g podprobe.GRPCConfig) (ours.Prober, error) {
			return oursgrpc.New(oursgrpc.Config{
				Host: g.Host, Port: g.Port, Service: g.Service, TLS: g.TLS, FreshConnections: fresh,
			})
		},
	}
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{*c}}}
	status := &corev1.PodStatus{PodIP: loopback, ContainerStatuses: []corev1.ContainerStatus{{
		Name: c.Name, ContainerID: "id", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
	}}}
	targets, _ := podprobe.Targets(pod, status, nil, options)
	ask := func() probeOutcome {
		ctx, cancel := context.WithTimeout(t.Context(), d.timeout)
		defer cancel()
		return fromOurs(targets[0].Prober.Probe(ctx))
	}
	return ask(), ask()
}

var (
	// localPort matches the local address of a connection, which differs between runs.
	localPort = regexp.MustCompile(`127\.0\.0\.1:\d+->`)
	// timedOut matches the timeout errors of net/http. The text depends on a race.
	timedOut = regexp.MustCompile(`(net/http: request canceled( while waiting for connection)?|context deadline exceeded)` +
		`( \(Client\.Timeout exceeded while awaiting headers\))?$`)
)

// normalizeProbe removes parts that differ between runs, and sets the version of a kubelet: a binary without release flags has
// an empty version.
func normalizeProbe(p probeOutcome) probeOutcome {
	p.Output = localPort.ReplaceAllString(p.Output, "")
	p.Output = timedOut.ReplaceAllString(p.Output, "timeout")
	p.Output = strings.ReplaceAll(p.Output, "kube-probe/.\r\n", "kube-probe/1.37\r\n")
	return p
}

// listenRaw runs a TCP server that calls serve for each connection.
func listenRaw(t *testing.T, serve func(net.Conn)) int {
	t.Helper()
	l, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				go func() {
					defer conn.Close()
					serve(conn)
				}()
			}
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// closedPort returns a port without a listener that no listener can use: it is the local port of a connection.
func closedPort(t *testing.T) int {
	t.Helper()
	port := listenRaw(t, func(conn net.Conn) { _, _ = conn.Read(make([]byte, 1)) })
	conn, err := net.Dial("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return conn.LocalAddr().(*net.TCPAddr).Port
}

// reset closes a connection with a TCP reset.
func reset(conn net.Conn) {
	if c, ok := conn.(*tls.Conn); ok {
		conn = c.NetConn()
	}
	_ = conn.(*net.TCPConn).SetLinger(0)
	_ = conn.Close()
}

// runProbeCases runs each case in a parallel subtest.
func runProbeCases(t *testing.T, dialogues []probeCase) {
	t.Helper()
	for _, d := range dialogues {
		t.Run(d.name, func(t *testing.T) {
			t.Parallel()
			d.run(t)
		})
	}
}
