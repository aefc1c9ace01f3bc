// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package main_test

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
	"github.com/seed81659283/nodeagent/internal/exetest"
)

// attacks are inputs from authors of pods, users of the cluster and clients without credentials.
var attacks = []struct {
	name string
	run  func(*attackedAgent)
}{
	{"quantities whose exponent takes minutes to expand", largeQuantities},
	{"256 probes without a time-out of a server that hangs", silentProbes},
	{"gRPC health servers with responses of 15 MiB", loudHealth},
	{"exec probes that print 15 MiB", loudExec},
	{"HTTP/2 streams of clients without credentials", unauthenticatedStreams},
	{"2,000 invalid tokens while a review takes a second", garbageTokens},
	{"requests of 80 KB that are refused", longRequests},
	{"a list of more than 64 MiB of pods", largePods},
	{"a list of more than 64 MiB of services", largeServices},
	{"pods of 1 MiB that replace each other under one name", successors},
	{"12,000 terminated pods", manyPods},
	{"5,000 optional config maps that do not exist", missingMaps},
	{"a volume record of more than 4 MiB", largeRecord},
	{"10,000 devices with long IDs every 10 ms", restlessDevices},
	{"Allocate responses of 16 MiB", largeAllocations},
	{"1,000 connections that list pod resources", listWithoutEnd},
	{"2,000 registrations of device plugins a second", registrationFlood},
}

// largeQuantities sends quantities in a manifest and through the API server.
func largeQuantities(b *attackedAgent) {
	const medium = "HugePages-1e-2000000000"
	b.manifests.Write("quantity.yaml", podYAML("quantity", "sleep 1000")+"\n  volumes: [{name: v, emptyDir: {medium: "+medium+"}}]\n")
	require.NoError(b.t, b.Put(b.attackPod("quantity", func(pod *corev1.Pod) {
		pod.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}}}
	})))
	pause(b, 5*time.Second)
	b.agent.Kill() // the agent reads the store at its next start
	b.startAgent()
	b.awaitReady("good", time.Minute)
}

// pause gives an attack time to take effect.
func pause(b *attackedAgent, d time.Duration) {
	b.t.Helper()
	select {
	case <-time.After(d):
	case <-b.t.Context().Done():
	}
}

// silentProbes adds readiness and liveness probes to 128 containers.
func silentProbes(b *attackedAgent) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = l.Close() })
	var accepted atomic.Int64
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted.Add(1)
			defer conn.Close()
		}
	}()
	probe := &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 1<<31 - 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Host: "127.0.0.1", Port: intstr.FromInt(l.Addr().(*net.TCPAddr).Port)},
	}}
	require.NoError(b.t, b.Put(b.attackPod("silent", func(pod *corev1.Pod) {
		for i := range 128 {
			c := pod.Spec.Containers[0]
			c.Name, c.ReadinessProbe, c.LivenessProbe = fmt.Sprint("c", i), probe, probe.DeepCopy()
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	})))
	exetest.Eventually(b.t, timeout, func() error {
		if n := accepted.Load(); n < 32 { // the agent limits the number of parallel probes
			return fmt.Errorf("only %d probes are running", n)
		}
		return nil
	})
	pause(b, 5*time.Second)
}

// loudHealth causes 16 probes a second.
func loudHealth(b *attackedAgent) {
	message := strings.Repeat("x", 15<<20)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Grpc-Status", "2")
		w.Header().Set("Grpc-Message", message)
	}))
	good, _ := apiservertest.Get[*corev1.Pod](b.Server, "default", "good")
	l, err := net.Listen("tcp", net.JoinHostPort(good.Status.HostIP, "0")) // gRPC probes go to the address of the pod
	require.NoError(b.t, err)
	require.NoError(b.t, server.Listener.Close())
	server.Listener, server.Config.Protocols = l, new(http.Protocols)
	server.Config.Protocols.SetUnencryptedHTTP2(true)
	server.Start()
	b.t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	port := int32(l.Addr().(*net.TCPAddr).Port)
	require.NoError(b.t, b.Put(b.attackPod("health", func(pod *corev1.Pod) {
		for i := range 16 {
			c := pod.Spec.Containers[0]
			c.Name = fmt.Sprint("c", i)
			c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 10, ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: port}}}
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	})))
	pause(b, 15*time.Second)
}

// loudExec causes 16 probes a second, of containers with names that serveRuntime recognizes.
func loudExec(b *attackedAgent) {
	require.NoError(b.t, b.Put(b.attackPod("exec", func(pod *corev1.Pod) {
		for i := range 16 {
			c := pod.Spec.Containers[0]
			c.Name = fmt.Sprint("loud", i)
			c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, TimeoutSeconds: 10, ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"x"}}}}
			pod.Spec.Containers = append(pod.Spec.Containers, c)
		}
	})))
	pause(b, 10*time.Second)
}

// unauthenticatedStreams opens eight connections with 250 streams each, whose headers refer to one large entry of the header
// table.
func unauthenticatedStreams(b *attackedAgent) {
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() { _ = openStreams(fmt.Sprintf("127.0.0.1:%d", b.port), 250) })
	}
	wg.Wait()
}

// openStreams opens streams on a connection, each with 900 KB of headers in a few hundred bytes. It keeps them open for five
// seconds and closes the connection.
func openStreams(address string, streams uint32) error {
	conn, err := tls.DialWithDialer(&net.Dialer{Timeout: 5 * time.Second}, "tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
	if err != nil {
		return err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := io.WriteString(conn, http2.ClientPreface); err != nil {
		return err
	}
	var block strings.Builder
	encoder, framer := hpack.NewEncoder(&block), http2.NewFramer(conn, conn)
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	go func() { _, _ = io.Copy(io.Discard, conn) }()
	large := hpack.HeaderField{Name: "x-large", Value: strings.Repeat("v", 3900)} // fits the table of 4 KiB
	for i := range streams {
		block.Reset()
		for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", address}, {":path", "/pods"}, {"authorization", fmt.Sprint("Bearer t", i)}} {
			if err := encoder.WriteField(hpack.HeaderField{Name: f[0], Value: f[1], Sensitive: true}); err != nil {
				return err
			}
		}
		for range 230 {
			if err := encoder.WriteField(large); err != nil {
				return err
			}
		}
		if err := framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 2*i + 1, BlockFragment: []byte(block.String()), EndHeaders: true, EndStream: true}); err != nil {
			return err
		}
	}
	time.Sleep(5 * time.Second)
	return nil
}

// garbageTokens sends invalid tokens, while a valid client gets responses.
func garbageTokens(b *attackedAgent) {
	b.reviews.Store(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(time.Second)
		answerReview(w, r)
	}))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 50 {
		wg.Go(func() {
			for j := range 40 {
				select {
				case <-stop:
					return
				default:
				}
				_, _ = b.getStatus("/pods", fmt.Sprintf("garbage-%d-%d", i, j))
			}
		})
	}
	var errs []error
	for range 5 {
		if code, err := b.getStatus("/pods", goodToken); err != nil || code != http.StatusOK {
			errs = append(errs, fmt.Errorf("a valid client gets %d: %w", code, err))
		}
		pause(b, time.Second)
	}
	close(stop)
	wg.Wait()
	require.NoError(b.t, errors.Join(errs...))
}

// longRequests checks that refused requests add little to the log.
func longRequests(b *attackedAgent) {
	before := len(b.agent.Output())
	const requests = 200
	for range requests {
		_, _ = b.getStatus("/pods/"+strings.Repeat("a", 80<<10), "garbage")
	}
	require.Less(b.t, len(b.agent.Output())-before, requests*4<<10, "%d requests add less than 4 KiB each to the log", requests)
}

// relist makes the agent list all objects again.
func relist(b *attackedAgent) {
	b.Compact()
	b.DisconnectAll()
	pause(b, 10*time.Second)
}

func largePods(b *attackedAgent) {
	for i := range 60 {
		require.NoError(b.t, b.Put(b.attackPod(fmt.Sprint("large", i), func(pod *corev1.Pod) {
			pod.Annotations = map[string]string{"note": strings.Repeat("n", 1400<<10)}
			pod.Status.Phase = corev1.PodSucceeded
		})))
	}
	relist(b)
}

func largeServices(b *attackedAgent) {
	for i := range 280 {
		require.NoError(b.t, b.Put(&corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Namespace: "elsewhere", Name: fmt.Sprint("s", i), Annotations: map[string]string{"note": strings.Repeat("n", 255<<10)}},
			Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.9", Ports: []corev1.ServicePort{{Port: 80}}},
		}))
	}
	relist(b)
}

func successors(b *attackedAgent) {
	for i := range 150 {
		pod := b.attackPod("successor", func(pod *corev1.Pod) {
			pod.Annotations, pod.UID = map[string]string{"note": strings.Repeat("n", 1<<20)}, types.UID(fmt.Sprintf("successor-%d", i))
			pod.Spec.Containers[0].Env = []corev1.EnvVar{{Name: "E", Value: strings.Repeat("e", 100<<10)}}
		})
		require.NoError(b.t, b.Put(pod))
		pause(b, 50*time.Millisecond)
		require.NoError(b.t, b.Remove(pod))
	}
}

func manyPods(b *attackedAgent) {
	for i := range 12_000 {
		require.NoError(b.t, b.Put(b.attackPod(fmt.Sprint("a", i), func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodSucceeded })))
	}
	relist(b)
}

func missingMaps(b *attackedAgent) {
	for i := range 5 {
		require.NoError(b.t, b.Put(b.attackPod(fmt.Sprint("missing", i), func(pod *corev1.Pod) {
			for j := range 1000 {
				pod.Spec.Containers[0].EnvFrom = append(pod.Spec.Containers[0].EnvFrom, corev1.EnvFromSource{
					ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: fmt.Sprintf("map-%d-%d", i, j)}, Optional: new(true)},
				})
			}
		})))
	}
	pause(b, 5*time.Second)
	require.NoError(b.t, b.Put(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "own"}, Data: map[string]string{"a": "b"}}))
	user := b.goodPod("user")
	user.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "own"}}}}
	require.NoError(b.t, b.Put(user))
	b.awaitReady("user", time.Minute)
}

// largeRecord adds and removes a static pod whose volumes exceed the size of a record. The pod must be removed with its
// manifest.
func largeRecord(b *attackedAgent) {
	var volumes strings.Builder
	for i := range 60 {
		fmt.Fprintf(&volumes, "\n  - {name: v%d, downwardAPI: {items: [{path: %q, fieldRef: {fieldPath: metadata.name}}]}}", i, strings.Repeat("long/", 16<<10)+"x")
	}
	b.manifests.Write("record.yaml", podYAML("record", "sleep 1000")+"\n  volumes:"+volumes.String()+"\n")
	pause(b, 5*time.Second)
	b.manifests.Remove("record.yaml")
	exetest.Eventually(b.t, timeout/exetest.TimeoutFactor, func() error {
		if _, found := apiservertest.Get[*corev1.Pod](b.Server, "default", "record-n1"); found {
			return errors.New("the pod with the large record is not removed")
		}
		return nil
	})
}

func TestAttackNamesAreUnique(t *testing.T) {
	names := map[string]bool{}
	for _, a := range attacks {
		require.False(t, names[a.name], a.name)
		names[a.name] = true
	}
}
