// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package source_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/seed81659283/nodeagent/lifecycle"
	"github.com/seed81659283/nodeagent/lifecycle/source"
)

// A stored pod whose check hangs delays the sources by one minute.
func TestFeedRunsSourcesAlthoughStoredPodHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		release, began := make(chan struct{}), time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var after time.Duration
		feed := source.Feed{
			Stored: []lifecycle.PodSet{{Source: "api"}}, Logger: slog.New(slog.NewTextHandler(&log, nil)), Set: func(lifecycle.PodSet) { <-release },
			Sources: []source.Source{source.New("file", func(ctx context.Context, _ func(lifecycle.PodSet)) error {
				after = time.Since(began)
				<-ctx.Done()
				return nil
			})},
		}
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, feed.Run(ctx)) })
		time.Sleep(2 * time.Minute)
		synctest.Wait() // synchronizes for the race detector
		require.Equal(t, time.Minute, after)
		require.Contains(t, log.String(), "setting the stored pods takes too long")
		close(release)
		cancel()
		wg.Wait()
	})
}

func TestFeedSetsStoredPodsBeforeItRunsSources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		ctx, cancel := context.WithCancel(t.Context())
		feed := source.Feed{
			Stored: []lifecycle.PodSet{{Source: "file"}, {Source: "api"}},
			Set: func(s lifecycle.PodSet) {
				time.Sleep(10 * time.Second)
				order = append(order, s.Source)
			},
			Update: func(s lifecycle.PodSet) lifecycle.PodSet { return lifecycle.PodSet{Source: s.Source + " stored"} },
			Sources: []source.Source{source.New("new", func(_ context.Context, set func(lifecycle.PodSet)) error {
				set(lifecycle.PodSet{Source: "another"})
				cancel()
				return errors.New("an error after the end of ctx is not reported")
			})},
		}
		require.NoError(t, feed.Run(ctx))
		require.Equal(t, []string{"file", "api", "new stored"}, order)
	})
}

func TestFeedStopsAllSourcesAfterError(t *testing.T) {
	var stopped bool
	feed := source.Feed{Set: func(lifecycle.PodSet) {}, Sources: []source.Source{
		source.New("bad", func(context.Context, func(lifecycle.PodSet)) error { return errors.New("no such host") }),
		source.New("good", func(ctx context.Context, _ func(lifecycle.PodSet)) error {
			<-ctx.Done()
			stopped = true
			return nil
		}),
	}}
	require.EqualError(t, feed.Run(t.Context()), "source bad: no such host")
	require.True(t, stopped)
}

// A node runs the pods of two sources; one of them builds its pods in code.
func ExampleFeed() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	pods := make(chan []*corev1.Pod, 1)
	pods <- []*corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Name: "sensor"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}}}}
	feed := source.Feed{
		Sources: []source.Source{source.Pods("code", pods), source.New("none", func(ctx context.Context, _ func(lifecycle.PodSet)) error {
			<-ctx.Done()
			return nil
		})},
		Set: func(s lifecycle.PodSet) { // reconciler.Set
			pod := s.Pods[0]
			fmt.Println(s.Source, pod.Namespace, pod.Name, len(pod.UID), pod.Spec.RestartPolicy)
			cancel()
		},
	}
	fmt.Println(feed.Run(ctx))
	// Output:
	// code default sensor 32 Always
	// <nil>
}

// Transform replaces listed and stored pods, and leaves the lists of the sources as they are.
func TestFeedTransformsListedAndStoredPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pod := func(name string) *corev1.Pod { return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}} }
		listed := []*corev1.Pod{pod("listed")}
		var names []string
		ctx, cancel := context.WithCancel(t.Context())
		feed := source.Feed{
			Stored: []lifecycle.PodSet{{Source: "file", Pods: []*corev1.Pod{pod("stored")}}},
			Sources: []source.Source{source.New("file", func(ctx context.Context, set func(lifecycle.PodSet)) error {
				set(lifecycle.PodSet{Pods: listed})
				<-ctx.Done()
				return nil
			})},
			Transform: func(p *corev1.Pod) *corev1.Pod { return pod("new-" + p.Name) },
			Set:       func(s lifecycle.PodSet) { names = append(names, s.Pods[0].Name) },
		}
		var wg sync.WaitGroup
		wg.Go(func() { assert.NoError(t, feed.Run(ctx)) })
		synctest.Wait()
		require.Equal(t, []string{"new-stored", "new-listed"}, names)
		require.Equal(t, "listed", listed[0].Name)
		cancel()
		wg.Wait()
	})
}
