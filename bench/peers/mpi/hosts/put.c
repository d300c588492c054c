// Between hosts: MPI_Isend and MPI_Irecv against MPI_Put. Each rank swaps memory with the one half of the ranks away, in pieces; ways take
// turns, and the medians of the slowest rank are printed.
//
//     mpicc -O2 -o put put.c && mpirun -np 4 --host a:2,b:2 ./put [MEGABYTES [ROUNDS]]

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { most_rounds = 99 };

static int rank, ranks, peer;
static size_t bytes;
static char *out, *in;
static MPI_Win window;

static int piece(size_t at, size_t most) { return (int)(bytes - at < most ? bytes - at : most); }

static void messages(size_t most) {
	int n = 0, pieces = (int)((bytes + most - 1) / most), left = 2 * pieces;
	MPI_Request *all = malloc(left * sizeof *all);
	int *ended = malloc(left * sizeof *ended);
	for (size_t at = 0; at < bytes; at += most) MPI_Irecv(in + at, piece(at, most), MPI_BYTE, peer, 0, MPI_COMM_WORLD, &all[n++]);
	for (size_t at = 0; at < bytes; at += most) MPI_Isend(out + at, piece(at, most), MPI_BYTE, peer, 0, MPI_COMM_WORLD, &all[n++]);
	while (left > 0) {
		int now = 0;
		MPI_Testsome(n, all, &now, ended, MPI_STATUSES_IGNORE);
		if (now > 0) left -= now;
		else sched_yield(); // ranks may share a core
	}
	free(all);
	free(ended);
}

static void puts_flushed(size_t most) {
	MPI_Win_lock_all(MPI_MODE_NOCHECK, window);
	for (size_t at = 0; at < bytes; at += most) MPI_Put(out + at, piece(at, most), MPI_BYTE, peer, at, piece(at, most), MPI_BYTE, window);
	MPI_Win_flush(peer, window);
	MPI_Barrier(MPI_COMM_WORLD); // the peer has flushed what is in this rank's memory
	MPI_Win_unlock_all(window);
}

static void puts_fenced(size_t most) {
	MPI_Win_fence(0, window);
	for (size_t at = 0; at < bytes; at += most) MPI_Put(out + at, piece(at, most), MPI_BYTE, peer, at, piece(at, most), MPI_BYTE, window);
	MPI_Win_fence(0, window);
}

static const struct {
	const char *name;
	void (*swap)(size_t most);
	size_t most;
} ways[] = {
	{"send and receive, 64 KiB", messages, 64 << 10}, {"send and receive, 256 KiB", messages, 256 << 10},
	{"send and receive, 1 MiB", messages, 1 << 20},	  {"send and receive, 4 MiB", messages, 4 << 20},
	{"put and flush, 1 MiB", puts_flushed, 1 << 20},  {"put and flush, 4 MiB", puts_flushed, 4 << 20},
	{"put and fence, 1 MiB", puts_fenced, 1 << 20},
};
enum { count = sizeof ways / sizeof *ways };

static int compare(const void *a, const void *b) {
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv) {
	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	peer = (rank + ranks / 2) % ranks;
	bytes = (size_t)(argc > 1 ? atoi(argv[1]) : 8) << 20;
	int rounds = argc > 2 ? atoi(argv[2]) : 9, wrong = 0;
	if (rounds < 1 || rounds > most_rounds || ranks % 2 != 0) MPI_Abort(MPI_COMM_WORLD, 2);
	out = malloc(bytes);
	memset(out, rank + 1, bytes);
	MPI_Win_allocate(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &in, &window);
	static double times[count][most_rounds];
	for (int round = -1; round < rounds; round++) { // the first one touches memory for the first time
		for (int w = 0; w < count; w++) {
			memset(in, 0, bytes);
			MPI_Barrier(MPI_COMM_WORLD);
			double begin = MPI_Wtime();
			ways[w].swap(ways[w].most);
			double time = MPI_Wtime() - begin;
			for (size_t i = 0; i < bytes; i += 997) wrong += in[i] != peer + 1;
			MPI_Allreduce(MPI_IN_PLACE, &time, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
			if (round >= 0) times[w][round] = time;
		}
	}
	MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
	for (int w = 0; w < count && rank == 0; w++) {
		qsort(times[w], rounds, sizeof(double), compare);
		printf("%-26s %6.3f GB/s each way of a host\n", ways[w].name, 1e-9 * bytes * (ranks / 2) / times[w][rounds / 2]);
	}
	if (rank == 0) {
		printf("%d wrong bytes\n", wrong);
		fflush(stdout);
	}
	MPI_Win_free(&window);
	MPI_Finalize();
	return wrong > 0;
}
