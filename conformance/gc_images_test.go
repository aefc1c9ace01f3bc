// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"
	statsapi "k8s.io/kubelet/pkg/apis/stats/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/container"
	kubeletimages "k8s.io/kubernetes/pkg/kubelet/images"

	"github.com/seed81659283/nodeagent/cri"
	"github.com/seed81659283/nodeagent/gc"
	"github.com/seed81659283/nodeagent/internal/gctest"
)

const (
	imagePasses = 20      // per scenario
	diskSize    = 100_000 // in bytes
	biggest     = 3000    // largest image, in bytes
)

// TestImageGC is a random-operations test of the kubelet's image manager and ours on equal stores. Images are pulled, used
// and released, the disk fills up, removals fail, time passes, and both collect. After each pass both have removed the same
// images in the same order, and either both or neither have failed. Every second scenario has no ImagePolicy.Kubelet, and
// then no operation for which both differ by intention.
func TestImageGC(t *testing.T) {
	went, failed, seed := 0, 0, flags.Seed()
	for i := range max(1, flags.Inputs()/imagePasses) {
		synctest.Test(t, func(t *testing.T) {
			s := newImageCollection(t, rand.New(rand.NewPCG(seed, uint64(i))), i%2 == 0)
			for range imagePasses {
				s.change()
				if s.pass() {
					failed++
				}
			}
			went += len(s.ours.RemovedIDs())
		})
		if t.Failed() {
			t.Fatalf("seed %d, scenario %d", seed, i)
		}
	}
	t.Logf("%d images removed, %d passes failed", went, failed)
	if enough := flags.Inputs() / 50; went < enough || failed < enough {
		t.Errorf("only %d images removed and %d passes failed, of %d", went, failed, flags.Inputs())
	}
}

type imageCollection struct {
	t            *testing.T
	rnd          *rand.Rand
	kubelet      bool // ours must behave exactly like the kubelet
	theirs, ours *gctest.Store
	manager      kubeletimages.ImageGCManager
	collector    *gc.Images
	began        time.Time
	pulled, made int
	containers   [4]string
	failing      string // image whose removal fails
}

func newImageCollection(t *testing.T, rnd *rand.Rand, kubelet bool) *imageCollection {
	s := &imageCollection{t: t, rnd: rnd, kubelet: kubelet, theirs: gctest.NewStore(diskSize), ours: gctest.NewStore(diskSize), began: time.Now()}
	policy := gc.ImagePolicy{MinAge: time.Duration(rnd.IntN(4)) * time.Minute, Kubelet: kubelet, LowThresholdPercent: rnd.IntN(99)}
	policy.HighThresholdPercent = policy.LowThresholdPercent + 2 + rnd.IntN(99-policy.LowThresholdPercent)
	if kubelet {
		policy.HighThresholdPercent -= rnd.IntN(3)
		if rnd.IntN(2) == 0 {
			policy.MaxAge = policy.MinAge + time.Duration(1+rnd.IntN(10))*time.Minute
		}
	}
	fault := func(_ context.Context, op, id string) error {
		if op == "RemoveImage" && id == s.failing {
			return errors.New("out of order")
		}
		return nil
	}
	s.theirs.Fault, s.ours.Fault = fault, fault
	var err error
	s.manager, err = kubeletimages.NewImageGCManager(kubeletStore{Store: s.theirs}, storeStats{s.theirs}, nil, &record.FakeRecorder{},
		&corev1.ObjectReference{}, kubeletimages.ImageGCPolicy{
			HighThresholdPercent: policy.HighThresholdPercent, LowThresholdPercent: policy.LowThresholdPercent,
			MinAge: policy.MinAge, MaxAge: policy.MaxAge,
		}, noop.NewTracerProvider())
	if err != nil {
		t.Fatal(err)
	}
	s.collector, err = gc.NewImages(s.ours, s.ours, gc.ImageOptions{Policy: &policy, Disk: s.ours.Disk, Settle: -1})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.collector.Detect(t.Context()); err != nil { // start of MaxAge
		t.Fatal(err)
	}
	return s
}

// change applies one random change to both stores. It adds at most one image, because images that are first seen in one pass
// have no order.
func (s *imageCollection) change() {
	stores := []*gctest.Store{s.theirs, s.ours}
	if s.rnd.IntN(3) > 0 {
		s.pulled++
		name, size := fmt.Sprint("i", s.pulled), 1+s.rnd.Uint64N(biggest)
		for _, store := range stores {
			store.AddImage(name, gctest.Layer{Name: name, Size: size})
		}
	}
	image, mounted := s.anyImage(), s.anyImage()
	slot, uses := s.rnd.IntN(len(s.containers)), s.rnd.IntN(2) == 0
	was := s.containers[slot]
	s.made++
	s.containers[slot] = fmt.Sprint("c", s.made)               // IDs are unique
	fill := s.rnd.Uint64N(diskSize - biggest*uint64(s.pulled)) // below the free space: otherwise the removal of images would free less than necessary
	for _, store := range stores {
		store.RemoveContainer(was)
		if uses {
			store.AddContainer(s.containers[slot], image, mounted)
		}
		store.SetOtherBytes(fill)
	}
	s.failing = ""
	if s.kubelet && s.rnd.IntN(4) == 0 {
		s.failing = s.anyImage()
	}
	time.Sleep(time.Duration(s.rnd.IntN(5)) * 30 * time.Second)
	time.Sleep(time.Nanosecond)
}

func (s *imageCollection) anyImage() string { return fmt.Sprint("sha256:i", 1+s.rnd.IntN(s.pulled+1)) }

// pass runs both collectors, compares the results, and reports whether the pass failed.
func (s *imageCollection) pass() (failed bool) {
	ctx := s.t.Context()
	var theirErr, ourErr error
	if s.rnd.IntN(5) == 0 {
		theirErr = s.manager.DeleteUnusedImages(ctx)
		_, ourErr = s.collector.Reclaim(ctx, gc.ReclaimAll)
	} else {
		theirErr = s.manager.GarbageCollect(ctx, s.began)
		ourErr = s.collector.Collect(ctx)
	}
	if theirs, ours := s.theirs.RemovedIDs(), s.ours.RemovedIDs(); !reflect.DeepEqual(theirs, ours) {
		s.t.Errorf("the kubelet has removed %v, ours %v", theirs, ours)
	}
	if (theirErr == nil) != (ourErr == nil) {
		s.t.Errorf("the kubelet returned %v, ours %v", theirErr, ourErr)
	}
	return theirErr != nil
}

// kubeletStore is a store in the interface of the kubelet's image manager. Other methods panic.
type kubeletStore struct {
	container.Runtime
	*gctest.Store
}

func (k kubeletStore) ListImages(ctx context.Context) (list []container.Image, err error) {
	images, err := k.Store.ListImages(ctx)
	for _, i := range images {
		list = append(list, container.Image{ID: i.ID, Size: int64(i.Size), RepoTags: i.RepoTags, RepoDigests: i.RepoDigests, Pinned: i.Pinned})
	}
	return list, err
}

func (k kubeletStore) GetPods(ctx context.Context, _ bool) (pods []*container.Pod, err error) {
	snap, err := k.List(ctx)
	for _, c := range snap.Containers {
		pods = append(pods, &container.Pod{ID: types.UID(c.PodUID), Containers: []*container.Container{{
			ID: container.ContainerID{ID: c.ID}, ImageID: c.ImageID,
		}}})
	}
	return pods, err
}

func (k kubeletStore) GetContainerStatus(ctx context.Context, _ types.UID, id container.ContainerID) (*container.Status, error) {
	c, err := k.ContainerStatus(ctx, id.ID)
	st := &container.Status{}
	for _, m := range c.Mounts {
		st.Mounts = append(st.Mounts, container.Mount{Image: &runtimeapi.ImageSpec{Image: m.Image.Image}})
	}
	return st, err
}

func (k kubeletStore) RemoveImage(ctx context.Context, spec container.ImageSpec) error {
	return k.Store.RemoveImage(ctx, cri.ImageSpec{Image: spec.Image})
}

// storeStats returns the disk usage of a store to the kubelet's image manager.
type storeStats struct{ store *gctest.Store }

func (s storeStats) ImageFsStats(ctx context.Context) (images, containers *statsapi.FsStats, err error) {
	d, err := s.store.Disk(ctx)
	return &statsapi.FsStats{CapacityBytes: &d.Capacity, AvailableBytes: &d.Available}, nil, err
}
