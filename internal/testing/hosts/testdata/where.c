/* Every rank says where it is, and exchanges 8 MB with the rank half the world away. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { bytes = 8000000 };

/* MPICH 4.0 on UCX over TCP may wait for ever in MPI_Finalize: a rank that has closed its connections waits for the others in a
   way that answers no message, and they may still ask it for an answer. So its last steps, by which the launcher knows that all is
   well, are done here, and the connections closed by the end of the process. */
static void leave(int code) {
    const char *launcher = getenv("PMI_FD");
    char answer[64];
    MPI_Barrier(MPI_COMM_WORLD);
    if (launcher == NULL) {
        MPI_Finalize();
        exit(code);
    }
    fflush(stdout);
    int fd = atoi(launcher);
    for (const char **say = (const char *[]){"cmd=barrier_in\n", "cmd=finalize\n", NULL}; *say; say++)
        if (write(fd, *say, strlen(*say)) < 0 || read(fd, answer, sizeof answer) <= 0) code = 2;
    _exit(code);
}

int main(int argc, char **argv) {
    int rank, size, shared, length;
    char name[MPI_MAX_PROCESSOR_NAME];
    MPI_Comm host;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Get_processor_name(name, &length);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_size(host, &shared);

    char *out = malloc(bytes), *in = malloc(bytes);
    int peer = (rank + size / 2) % size, wrong = 0;
    memset(out, rank + 1, bytes);
    MPI_Sendrecv(out, bytes, MPI_BYTE, peer, 0, in, bytes, MPI_BYTE, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < bytes; i++) wrong += in[i] != peer + 1;
    printf("rank %d of %d on %s with %d, %d wrong\n", rank, size, name, shared, wrong);
    leave(wrong != 0);
}
