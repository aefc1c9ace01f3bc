// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package turns_test

import (
	"cmp"
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/lifecycle/turns"
)

// recordingQueue records the order of the turns of a queue.
type recordingQueue struct {
	queue *turns.Queue[int]
	mu    sync.Mutex
	order []int
	most  int // maximum number of simultaneous turns
	now   int
}

func newRecordingQueue() *recordingQueue { return &recordingQueue{queue: turns.New(cmp.Less[int])} }

// takeTurn waits for a turn and ends it after keep.
func (l *recordingQueue) takeTurn(ctx context.Context, ticket *turns.Ticket[int], rank int, keep time.Duration) error {
	done, err := ticket.Wait(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	l.order = append(l.order, rank)
	l.now++
	l.most = max(l.most, l.now)
	l.mu.Unlock()
	time.Sleep(keep)
	l.mu.Lock()
	l.now--
	l.mu.Unlock()
	done()
	return nil
}

// The lowest rank runs first: the queue waits for all expected tickets.
func TestLowestRankRunsFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRecordingQueue()
		tickets := map[int]*turns.Ticket[int]{}
		for rank := range 20 {
			tickets[rank] = l.queue.Expect(rank)
		}
		var wg sync.WaitGroup
		for rank, ticket := range tickets {
			wg.Go(func() {
				time.Sleep(time.Duration(rand.IntN(900)) * time.Millisecond)
				assert.NoError(t, l.takeTurn(t.Context(), ticket, rank, 10*time.Millisecond))
			})
		}
		wg.Wait()
		assert.True(t, slices.IsSorted(l.order), l.order)
		assert.Len(t, l.order, 20)
		assert.Equal(t, 1, l.most)
	})
}

// A ticket whose owner neither waits nor withdraws delays the other tickets by Timeout in total.
func TestUnusedTicketDelaysByTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRecordingQueue()
		late := l.queue.Expect(0)
		began := time.Now()
		require.NoError(t, l.takeTurn(t.Context(), l.queue.Expect(1), 1, 0))
		assert.Equal(t, turns.Timeout, time.Since(began))
		require.NoError(t, l.takeTurn(t.Context(), late, 0, 0), "an expired ticket can still wait")
		assert.Equal(t, turns.Timeout, time.Since(began))
	})
}

// A withdrawn ticket delays no other ticket, and its owner can still wait later.
func TestWithdrawnTicketDelaysNoTicket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newRecordingQueue()
		first := l.queue.Expect(0)
		began := time.Now()
		time.AfterFunc(300*time.Millisecond, first.Withdraw)
		require.NoError(t, l.takeTurn(t.Context(), l.queue.Expect(1), 1, 0))
		assert.Equal(t, 300*time.Millisecond, time.Since(began))
		require.NoError(t, l.takeTurn(t.Context(), first, 0, 0))
		first.Withdraw()
		assert.Equal(t, []int{1, 0}, l.order)
	})
}

// A cancelled Wait lets the next ticket run, even if the turn is granted at the same time.
func TestCancelledWaitLetsNextTicketRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for range 200 {
			l := newRecordingQueue()
			done, err := l.queue.Expect(0).Wait(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			wg.Go(func() {
				if err := l.takeTurn(ctx, l.queue.Expect(1), 1, 0); err != nil {
					assert.ErrorIs(t, err, context.Canceled)
				}
			})
			synctest.Wait()
			wg.Go(cancel)
			wg.Go(done)
			wg.Wait()
			require.NoError(t, l.takeTurn(t.Context(), l.queue.Expect(2), 2, 0))
			assert.Equal(t, 2, l.order[len(l.order)-1])
		}
	})
}
