// Copyright The Sandlot Authors.
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"bufio"
	"bytes"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/utils/clock"
)

// cgroup is where a container sees its own limits and usage.
const cgroup = "/sys/fs/cgroup/"

// metrics are what GET /metrics returns. Sizes are in bytes.
type metrics struct {
	Timestamp  int64   `json:"ts"`
	CPUCount   int     `json:"cpu_count"`
	CPUUsed    float64 `json:"cpu_used_pct"`
	MemTotal   uint64  `json:"mem_total"`
	MemUsed    uint64  `json:"mem_used"`
	MemTotalMB uint64  `json:"mem_total_mib"`
	MemUsedMB  uint64  `json:"mem_used_mib"`
	DiskTotal  uint64  `json:"disk_total"`
	DiskUsed   uint64  `json:"disk_used"`
}

// meter reads them. The use of processors is that since the last time.
type meter struct {
	clock clock.PassiveClock

	mu   sync.Mutex
	at   time.Time
	used time.Duration
	pct  float64
}

// meterInterval is over which time the use of processors is measured at least.
const meterInterval = time.Second

func newMeter(c clock.PassiveClock) *meter {
	return &meter{clock: c, at: c.Now(), used: processorTime()}
}

func (m *meter) read() metrics {
	now := m.clock.Now()
	out := metrics{Timestamp: now.Unix(), CPUCount: runtime.GOMAXPROCS(0), CPUUsed: m.processors(now)}
	out.MemTotal, out.MemUsed = memory()
	out.MemTotalMB, out.MemUsedMB = out.MemTotal>>20, out.MemUsed>>20
	var disk unix.Statfs_t
	if err := unix.Statfs("/", &disk); err == nil {
		size := uint64(disk.Bsize)
		out.DiskTotal, out.DiskUsed = disk.Blocks*size, (disk.Blocks-disk.Bfree)*size
	}
	return out
}

func (m *meter) processors(now time.Time) float64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	passed := now.Sub(m.at)
	if passed < meterInterval {
		return m.pct
	}
	used := processorTime()
	m.pct = 100 * max(0, float64(used-m.used)) / float64(passed) / float64(runtime.GOMAXPROCS(0))
	m.at, m.used = now, used
	return m.pct
}

// processorTime is what the container has used, or the machine where the container cannot see it.
func processorTime() time.Duration {
	if microseconds, ok := field(cgroup+"cpu.stat", "usage_usec"); ok {
		return time.Duration(microseconds) * time.Microsecond
	}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(text), "\n")
	var ticks uint64
	for i, number := range strings.Fields(line) {
		if n, err := strconv.ParseUint(number, 10, 64); err == nil && i > 0 && i != 4 && i != 5 { // idle, waiting
			ticks += n
		}
	}
	return time.Duration(ticks) * (time.Second / 100)
}

// memory is what the container may use and uses, without what the kernel can take back.
func memory() (total, used uint64) {
	machine, _ := field("/proc/meminfo", "MemTotal:")
	available, _ := field("/proc/meminfo", "MemAvailable:")
	total, used = machine<<10, (machine-min(available, machine))<<10
	current, ok := number(cgroup + "memory.current")
	if !ok {
		return total, used
	}
	cache, _ := field(cgroup+"memory.stat", "inactive_file")
	used = current - min(cache, current)
	if limit, ok := number(cgroup + "memory.max"); ok {
		total = min(total, limit)
	}
	return total, used
}

func number(file string) (uint64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n, err == nil
}

// field reads the number behind a name.
func field(file, name string) (uint64, bool) {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) >= 2 && fields[0] == name {
			n, err := strconv.ParseUint(fields[1], 10, 64)
			return n, err == nil
		}
	}
	return 0, false
}
