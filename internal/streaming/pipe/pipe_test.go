// SPDX-FileCopyrightText: The nodeagent Authors
// SPDX-License-Identifier: Apache-2.0

package pipe_test

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed81659283/nodeagent/internal/streaming/pipe"
)

func TestPipe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipe.New(10)
		text := bytes.Repeat([]byte("0123456789abc"), 100)
		go func() {
			n, err := p.Write(text)
			assert.NoError(t, err)
			assert.Equal(t, len(text), n)
			p.CloseWrite()
		}()
		got, err := io.ReadAll(p)
		require.NoError(t, err)
		assert.Equal(t, text, got)
		_, err = p.Read(make([]byte, 1))
		require.ErrorIs(t, err, io.EOF)
		_, err = p.Write(text)
		require.ErrorIs(t, err, io.ErrClosedPipe)
	})
}

// A write waits while its reader reads a little from time to time, and times out if the reader stops.
func TestWriteWithTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := pipe.New(4)
		go func() {
			for range 5 {
				time.Sleep(time.Second)
				_, _ = p.Read(make([]byte, 1))
			}
		}()
		began := time.Now()
		n, err := p.WriteWithTimeout(make([]byte, 100), 2*time.Second)
		require.ErrorIs(t, err, pipe.ErrFull)
		assert.Equal(t, 9, n)
		assert.Equal(t, 7*time.Second, time.Since(began))
	})
}

func TestAbort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("over")
		p := pipe.New(4)
		ends := make(chan error, 2)
		go func() {
			_, err := p.Write(make([]byte, 10))
			ends <- err
		}()
		synctest.Wait()
		p.Abort(why)
		p.Abort(io.EOF)
		require.ErrorIs(t, <-ends, why)
		_, err := p.Read(make([]byte, 1))
		require.ErrorIs(t, err, why, "buffered data is dropped")
		assert.True(t, p.IsClosed())

		p = pipe.New(4)
		go func() {
			_, err := p.Read(make([]byte, 1))
			ends <- err
		}()
		synctest.Wait()
		p.Abort(why)
		require.ErrorIs(t, <-ends, why)
	})
}
