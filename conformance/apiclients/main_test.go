// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiclients_test

import (
	"flag"
	"log/slog"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// TestMain keeps the tests on one processor: the race detector of Go 1.26 now and then crashes when timers of a
// synctest bubble fire on several (golang/go#78156). Goroutines are still preempted and still checked for races.
func TestMain(m *testing.M) {
	flag.Parse()
	if !testing.Verbose() {
		klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	}
	runtime.GOMAXPROCS(1)
	os.Exit(m.Run())
}

// fixture is an API server and a way to reach it.
type fixture struct {
	*testing.T
	server *apiservertest.Server
	config *rest.Config
}

// clientset returns a typed client.
func (f fixture) clientset() *kubernetes.Clientset {
	f.Helper()
	clients, err := kubernetes.NewForConfig(f.config)
	require.NoError(f, err)
	return clients
}

// awaitCondition waits until condition returns true, at most a minute.
func (f fixture) awaitCondition(condition func() bool, expectation string) {
	f.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			require.Fail(f, "the condition is not met within a minute", expectation)
		}
	}
}

// runInMemoryAndOnListener runs a test in a bubble with requests in memory, and with a listener.
func runInMemoryAndOnListener(t *testing.T, options apiservertest.Options, test func(f fixture)) {
	t.Run("in memory", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			server := apiservertest.NewServer(options)
			defer server.Close()
			config := server.Config()
			config.QPS = -1
			test(fixture{t, server, config})
		})
	})
	t.Run("listener", func(t *testing.T) {
		server := apiservertest.NewServer(options)
		config, stop := server.Listen(false)
		t.Cleanup(stop)
		config.QPS = -1
		test(fixture{t, server, config})
	})
}

func newPod(name string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{"app": "web"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "image"}}},
	}
}

func newNode(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}
