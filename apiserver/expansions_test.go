// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package apiserver_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/seed81659283/nodeagent/apiserver"
	"github.com/seed81659283/nodeagent/apiserver/apiservertest"
)

// gib is 1 GiB in bytes.
const gib = 1 << 30

// patches matches reports of an expanded volume.
var patches = apiservertest.Match{Verb: "patch", Resource: "persistentvolumeclaims", Subresource: "status"}

// claimOf returns a claim of 1 GiB.
func claimOf(uid string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "data", UID: types.UID(uid)},
		Status:     corev1.PersistentVolumeClaimStatus{Capacity: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}
}

// newExpansions runs an Expansions with an API server that has a claim.
func newExpansions(t *testing.T) (*scene, *apiserver.Expansions) {
	s := newScene(t, apiserver.Options{})
	require.NoError(t, s.server.Put(claimOf("u1")))
	objects, err := s.source.Objects(apiserver.ObjectsOptions{})
	require.NoError(t, err)
	e := apiserver.NewExpansions(objects, nil)
	s.runAll(e.Run)
	return s, e
}

// capacity returns the capacity in the status of the claim, as text.
func (s *scene) capacity() string {
	claim, ok := apiservertest.Get[*corev1.PersistentVolumeClaim](s.server, "default", "data")
	require.True(s, ok)
	return claim.Status.Capacity.Storage().String()
}

func TestExpandedReportsAtOnce(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s, e := newExpansions(t)
		e.Expanded(claimOf("u1"), nil, 2*gib)
		synctest.Wait()
		require.Equal(t, "2Gi", s.capacity())
		time.Sleep(time.Hour)
		require.Equal(t, 1, s.server.CountRequests(patches), "an accepted report is not sent again")
	})
}

// Expanded does not block while the API server is unavailable, and the newest size of a claim replaces older ones.
func TestExpandedReportsAfterAPIServerReturns(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s, e := newExpansions(t)
		s.server.SetUnavailable(true)
		for size := range int64(3) {
			e.Expanded(claimOf("u1"), nil, (2+size)*gib)
			time.Sleep(time.Minute)
		}
		s.server.SetUnavailable(false)
		time.Sleep(10*time.Second + time.Second)
		require.Equal(t, "4Gi", s.capacity())
		require.Equal(t, 1, s.server.CountRequests(patches))
	})
}

// Permissions may be granted later. The pauses are 1, 2, 4, 8, 10, 10, … s.
func TestExpandedRetriesRejectedReportWithBackOff(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s, e := newExpansions(t)
		remove := s.server.Fail("patch", "persistentvolumeclaims", http.StatusForbidden)
		e.Expanded(claimOf("u1"), nil, 2*gib)
		time.Sleep(time.Minute)
		require.Equal(t, 9, s.server.CountRequests(patches))
		remove()
		time.Sleep(10 * time.Second)
		require.Equal(t, "2Gi", s.capacity())
	})
}

// A new claim of the same name does not get the capacity of the deleted one.
func TestExpandedDropsReportOfDeletedClaim(t *testing.T) {
	runInBubble(t, func(t *testing.T) {
		s, e := newExpansions(t)
		e.Expanded(claimOf("u0"), nil, 2*gib)
		time.Sleep(time.Hour)
		require.Equal(t, "1Gi", s.capacity())
		require.Zero(t, s.server.CountRequests(patches))
		require.Equal(t, 1, s.server.CountRequests(apiservertest.Match{Verb: "get", Resource: "persistentvolumeclaims"}))
	})
}

func TestNewExpansionsWithoutObjectsPanicsWithTheirName(t *testing.T) {
	require.PanicsWithValue(t, "apiserver.NewExpansions: argument objects is nil: required, such as Source.Objects", func() {
		apiserver.NewExpansions(nil, nil)
	})
}
